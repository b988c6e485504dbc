"""Compare clipping strategies: on the gradients of one program, and over whole trainings.

An application: it imports the engine and the faces, and only `minigraph` itself and `minigraph.cli` import it.
"""

from minigraph.comparison.clip_text import clip_text, parse_clip
from minigraph.comparison.gradients import compare_gradients
from minigraph.comparison.report import GradientReport, Interrupted, Report, TrainingReport
from minigraph.comparison.results import StrategyResult, TrainingRun
from minigraph.comparison.statistics import Estimate, GradientStatistics, Summary
from minigraph.comparison.training import compare_training

__all__ = [
    "Estimate", "GradientReport", "GradientStatistics", "Interrupted", "Report", "StrategyResult", "Summary",
    "TrainingReport", "TrainingRun", "clip_text", "compare_gradients", "compare_training", "parse_clip",
]  # fmt: skip
