"""Parts of pictures: axes, lines that coincide, colours, thresholds."""

import numpy as np
import pytest
from report_samples import gradient_report, training_report

import minigraph as fluid
from minigraph.comparison.panels import BEFORE, Curve, Panel, gradient_panels, training_panels

plots = pytest.importorskip("minigraph.comparison.plots", reason="needs the extra [plot]")
STEPS = np.linspace(1, 2, 9)


def panel(kind="size", **series):
    return Panel("title", "step", [Curve(name, np.array(values)) for name, values in series.items()], kind)


@pytest.mark.parametrize(
    ("series", "is_in_powers"),
    [
        ({"a": STEPS, "b": 2 * STEPS}, False),
        ({"a": STEPS, "b": 2 * STEPS, "c": 100 * STEPS}, True),  # one dwarfs the rest
        ({"a": 10.0 ** np.arange(-3.0, 1)}, True),
        ({"a": STEPS, "b": -100 * STEPS}, False),
        ({"a": [np.nan, np.inf], "b": [0.0, 0.0]}, False),
        ({"a": []}, False),
    ],
)
def test_sizes_that_differ_much_are_shown_in_powers_of_ten(series, is_in_powers):
    assert panel(**series).is_in_powers == is_in_powers


def test_lines_that_coincide_for_the_eye_are_named():
    assert panel(a=STEPS, b=STEPS + 1e-4, c=1.5 * STEPS).coincident() == ["a and b coincide"]
    assert panel(a=STEPS, b=1.05 * STEPS).coincident() == []
    assert panel(a=[np.nan, 1.0], b=[np.nan, 1.0], c=[1.0, 1.0]).coincident() == ["a and b coincide"]
    # Beside a line of millions all others are flat on a linear axis, but not in powers of ten.
    assert panel(a=STEPS, b=3 * STEPS, c=1e6 * STEPS).coincident() == []


def test_a_strategy_looks_the_same_in_every_report_and_unclipped_is_neutral():
    names = [f"clip {n}" for n in range(40)]
    numbers = np.ones((42, 4, 2))
    one = plots.styles(gradient_report(["unclipped", *names], ["w"], numbers[:41]))
    other = plots.styles(training_report({(name, None): [[1.0]] for name in [*names[::-1], "unclipped"]}))
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert len({one[name] for name in names}) == 40
    assert one["unclipped"].color is other["unclipped"].color is one[BEFORE].color is None
    assert all(one[name].color is not None for name in names)


def drawn(shown):
    looks = {curve.name: plots.Style(index, "-", "o") for index, curve in enumerate(shown.curves)}
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    return plots.draw(shown, looks).axes[0]


@pytest.mark.slow
def test_the_axis_of_a_cosine_begins_near_its_least_value():
    low, high = drawn(panel("cosine", a=[0.999, 1.0, 1.0])).get_ylim()
    assert 0.98 < low < 0.999 and 1 < high < 1.01
    assert drawn(panel("cosine", a=[-0.5, 1.0])).get_ylim()[0] < -0.5


def test_powers_of_ten_are_written_as_numbers():
    ax = drawn(panel(a=10.0 ** np.arange(-3.0, 4)))
    ax.figure.canvas.draw()
    assert ax.get_yscale() == "log"
    assert "$" not in "".join(label.get_text() for label in ax.get_yticklabels())
    assert drawn(panel(a=[0.0, 1e-4, 10.0])).get_yscale() == "symlog"


def test_a_threshold_is_drawn_where_the_lines_come_near_it():
    for threshold, is_drawn in ((1.5, True), (3.0, True), (1000.0, False)):
        shown = Panel("title", "step", [Curve("a", STEPS)], thresholds={"a": threshold})
        lines = [line.get_ydata()[0] for line in drawn(shown).lines if len(set(line.get_ydata())) == 1]
        assert lines == ([threshold] if is_drawn else [])


def test_thresholds_are_those_of_the_clips():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    clips = {"norm": fluid.clip.GradientClipByNorm(2.0), "global": fluid.clip.GradientClipByGlobalNorm(3.0),
             "value": fluid.clip.GradientClipByValue(1.0)}  # fmt: skip
    feeds = [{"x": np.ones((1, 2), "float32")}]
    report = fluid.compare_gradients(main, loss, clips, feeds, startup=startup)
    together, parameters = plots.panels(report)
    assert together[0].thresholds == {"global": 3.0}
    assert [shown.thresholds for shown in parameters] == [{"norm": 2.0}] * 2


def test_curves_of_several_seeds_are_their_mean_between_the_least_and_the_largest():
    report = training_report({("a", 0.1): [[1.0, 2.0], [3.0, 6.0]], ("a", 0.2): [[9.0, 9.0]] * 2}, [1, 2])
    by_rate, *_ = shown = training_panels(report)
    assert by_rate.curves[0].at.tolist() == [0.1, 0.2]
    assert by_rate.curves[0].values.tolist() == [4.0, 9.0]
    [curve] = next(panel for panel in shown if panel.title == "held-out loss").curves
    assert [series.tolist() for series in (curve.low, curve.values, curve.high)] == [[1, 2], [2, 4], [3, 6]]
    assert len(gradient_panels(gradient_report([], ["w"], np.ones((0, 4, 2))))) == 0
