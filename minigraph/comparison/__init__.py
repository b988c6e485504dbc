"""Comparing clipping strategies: on the gradients of one program, and over whole trainings."""

from minigraph.comparison.clip_text import clip_text, parse_clip
from minigraph.comparison.gradients import GradientReport, compare_gradients
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import GradientStatistics, Summary
from minigraph.comparison.training import TrainingReport, TrainingRun, compare_training

__all__ = [
    "GradientReport", "GradientStatistics", "Report", "StrategyResult", "Summary", "TrainingReport", "TrainingRun",
    "clip_text", "compare_gradients", "compare_training", "parse_clip",
]  # fmt: skip
