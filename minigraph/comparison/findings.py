"""Sentences computed from the figures of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from minigraph.comparison.results import GradientResults, Results, TrainingResults
from minigraph.comparison.statistics import Estimate, mean_of_finite
from minigraph.comparison.wording import counted, estimate_words, listed, share

MOST_NAMED: Final = 5
"""Maximum number of strategies that a sentence lists."""


class Conclusion(NamedTuple):
    """Sentences about a report: results, their limits, and failures."""

    finding: str
    remarks: Sequence[str]
    warnings: Sequence[str]


def conclusion(report: Results[Any]) -> Conclusion:
    """All sentences about a report."""
    if isinstance(report, TrainingResults):
        return Conclusion(training_finding(report), training_remarks(report), training_warnings(report))
    gradients: Any = report
    return Conclusion(gradient_finding(gradients), (), gradient_warnings(gradients))


# Gradients


def gradient_finding(report: GradientResults) -> str:
    """Say which share of the gradients' norm each clip left."""
    batches = counted(len(report.loss), "batch", "batches")
    clips = {name: result.total for name, result in report.strategies.items() if result.strategy is not None}
    idle = [name for name, total in clips.items() if not total.share_clipped]
    if not clips:
        return "No clip was compared."
    if len(idle) == len(clips):
        return f"No clip changed any gradient in {batches}."
    left = {name: mean_of_finite(total.factor) for name, total in clips.items() if name not in idle}
    ordered = sorted(left, key=lambda name: (math.isnan(left[name]), left[name]))
    said = [f"{name} {'left ' if name == ordered[0] else ''}{share(left[name])}" for name in ordered]
    if len(said) > MOST_NAMED:
        said = [f"{said[0]}, the least", f"{said[-1]}, the most"]
    unchanged = f"; {_named(idle)} changed no gradient" if idle else ""
    return f"On average over {batches}, of the norm of all gradients {listed(said)}{unchanged}."


# Training


def training_finding(report: TrainingResults) -> str:
    """Say which strategies end lower or higher than the unclipped run by more than the spread of the seeds.

    Two strategies differ by that much if their intervals from ``mean - spread`` to ``mean + spread`` do not overlap, or
    if one diverged with every seed and the other with none.
    """
    best = {name: report.estimate(name, report.best_rate(name)) for name in report}
    if not best:
        return "No strategy was compared."
    if not any(estimate.seeds for estimate in best.values()):
        return "The first epoch was not finished: there is nothing to compare."
    if all(math.isnan(estimate.mean) for estimate in best.values()):
        return "Every run diverged: its loss is not finite in the end."
    lowest = min(best, key=lambda name: (best[name].diverged, math.isnan(best[name].mean), best[name].mean))
    baseline = next((name for name in report if report[name].strategy is None), lowest)
    at = f"At {'its best' if len(report.rates) > 1 else 'this one'} learning rate"
    words = {name: f"{name} ({estimate_words(estimate)})" for name, estimate in best.items()}
    if len(best) == 1:
        return f"{at} {baseline} ends with a {report.judged_by} of {estimate_words(best[baseline])}."
    if len({(estimate.mean, estimate.spread, estimate.diverged) for estimate in best.values()}) == 1:
        return f"{at} all strategies end with the same {report.judged_by}, {estimate_words(best[baseline])}."
    if len(report.seeds) == 1 or _seeds_change_nothing(report):
        against = "" if lowest == baseline else f", against {words[baseline]}"
        why = "one seed" if len(report.seeds) == 1 else "seeds that change nothing"
        return (
            f"{at} {words[lowest]} ends with the lowest {report.judged_by}{against}; {why} cannot tell whether the "
            "difference is more than chance."
        )
    spread = f"by more than the spread of the {len(report.seeds)} seeds"
    lower = [name for name in best if _is_below(best[name], best[baseline])]
    higher = [name for name in best if _is_below(best[baseline], best[name])]
    if not lower and not higher:
        kind, other = ("clip", "the unclipped run") if report[baseline].strategy is None else ("strategy", baseline)
        ends = list(best) if len(best) <= MOST_NAMED else list(dict.fromkeys([baseline, lowest]))
        shown = ", ".join(words[name] for name in ends)
        return f"{at} no {kind} differs from {other} {spread}; {report.judged_by}: {shown}."
    verdicts = [
        f"of {_named([words[name] for name in names])} is {verdict}"
        for names, verdict in ((lower, "lower"), (higher, "higher")) if names
    ]  # fmt: skip
    same = [name for name in best if name not in (*lower, *higher, baseline)]
    rest = f"; {_named(same)} {'does' if len(same) == 1 else 'do'} not differ by that much" if same else ""
    return f"{at} the {report.judged_by} {' and that '.join(verdicts)} than that of {words[baseline]} {spread}{rest}."


def _is_below(one: Estimate, other: Estimate) -> bool:
    if math.isnan(other.mean):
        return one.diverged == 0 < other.diverged and one.seeds > 0
    return one.mean + one.spread < other.mean - other.spread


def _seeds_change_nothing(report: TrainingResults) -> bool:
    return all(
        np.array_equal(run.loss, runs[0].loss, equal_nan=True)
        for name in report for rate in report.rates for runs in [report.at(name, rate)] for run in runs
    )  # fmt: skip


def _named(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} strategies"


# Warnings and remarks


def gradient_warnings(report: GradientResults) -> list[str]:
    """Say where the comparison was interrupted, and which raw gradients are the first with NaN or infinity."""
    found = [report.partial] if report.partial else []
    for result in list(report.strategies.values())[:1]:  # before clipping all have the same
        for index in range(len(report.loss)):
            names = [name for name, s in result.parameters.items() if not math.isfinite(s.norm_before[index])]
            if names:
                return [*found, f"NaN or infinity from batch {index + 1} on, in the gradients of {', '.join(names)}"]
    return found


def training_warnings(report: TrainingResults) -> list[str]:
    """Say where the comparison was interrupted, and which runs diverged at which step."""
    found = [report.partial] if report.partial else []
    broken = [f"{run.label} at step {run.diverged_at}" for run in report.runs if run.diverged_at]
    if broken:
        more = f" and {len(broken) - MOST_NAMED} more runs" if len(broken) > MOST_NAMED else ""
        found.append(f"the loss is no longer finite: {', '.join(broken[:MOST_NAMED])}{more}")
    return found


def training_remarks(report: TrainingResults) -> list[str]:
    """Say what limits the finding."""
    found = []
    if report.strategies and len(report.rates) == 1:
        found.append("another learning rate may order the strategies otherwise; try several (--rates, rates=)")
    rates = [rate for rate in report.rates if rate is not None]
    for end, word in ((min, "smallest"), (max, "largest")) if len(rates) > 1 else ():
        names = [name for name in report if report.best_rate(name) == end(rates)]
        if names:
            verb = "is" if len(names) == 1 else "are"
            found.append(
                f"{_named(names)} {verb} best at the {word} rate tried, {end(rates):g}: one beyond may be better"
            )
    idle = [
        name for name in report
        if report[name].strategy is not None and not any(run.total.share_clipped for run in report.at_best(name))
    ]  # fmt: skip
    if idle:
        found.append(f"{_named(idle)} changed no gradient in any step{' at its best rate' if len(rates) > 1 else ''}")
    return found
