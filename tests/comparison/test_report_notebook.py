"""Reports as the last line of a notebook's cell, and at a prompt."""

import sys
import warnings

import numpy as np
import pytest
import rich.console
from report_samples import gradient_report, training_report
from test_report_page import Page

import minigraph as fluid
from minigraph.comparison.progress import ProgressBar

NAMES = ["unclipped", "<b>norm</b>"]
NUMBERS = np.random.default_rng(1).uniform(0.1, 3, (2, 4, 500))
REPORTS = {
    "gradients": gradient_report(NAMES, ["w", "v"], NUMBERS),
    "training": training_report({(name, rate): NUMBERS[:2, 0] for name in NAMES for rate in (0.1, 0.2)}, [1, 2]),
}


def changed_program():
    before = fluid.Program.parse("program {}\nblock 0\n  data x: float32[2]\n")
    return fluid.diff(before, fluid.Program.parse("program {}\nblock 0\n  data x: float32[3] {persistable=True}\n"))


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_reports_and_records_are_short_at_a_prompt(report):
    assert report.finding() in repr(report)
    for shown in (report, report["<b>norm</b>"], report["<b>norm</b>"].parameters, report["<b>norm</b>"].total):
        assert len(repr(shown)) < 700
        assert repr(shown).count("\n") <= 3


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_notebook_shows_the_finding_and_a_table(report):
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    text = report._repr_html_()
    page = Page(text)
    assert page.open == []
    assert "<b>" not in text
    assert report.finding() in "".join(page.text)
    assert {row[0] for row in page.rows[1:]} == set(NAMES)
    assert page.count("figure") == 1
    assert len(text) < 200_000
    assert report._repr_html_() == text
    record = Page(report["<b>norm</b>"]._repr_html_())
    assert [row[0] for row in record.rows] == ["parameter", *report["<b>norm</b>"].parameters, "all together"]


def test_without_matplotlib_a_notebook_shows_the_table_alone(monkeypatch):
    monkeypatch.setattr("minigraph.comparison.page.find_spec", lambda name: None)
    page = Page(REPORTS["gradients"]._repr_html_())
    assert page.count("table") == 1
    assert page.count("svg") == 0


def test_a_difference_is_text_that_a_notebook_colours():
    text = changed_program()
    assert isinstance(text, str)
    assert "\n-   data x: float32[2]" in str(text)
    assert repr(text) == "<difference: 1 lines come, 1 go; print() shows them>"
    page = Page(text._repr_html_())
    assert "".join(page.text) == "1 lines come, 1 go" + text
    assert page.count("ins") == page.count("del") == 1
    same = fluid.diff(fluid.Program(), fluid.Program())
    assert (same, repr(same)) == ("", "<no difference>")


class Notebook:
    """The little of IPython that a progress bar uses, in the place of a notebook's."""

    kernel = None

    def __init__(self):
        self.shown = []
        self.display = self

    def get_ipython(self):
        return self

    def __call__(self, data, raw, display_id):
        return self

    def update(self, data, raw):
        self.shown.append(data["text/html"])


def test_a_progress_bar_in_a_notebook_is_an_element_of_html(monkeypatch):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr("minigraph.comparison.progress.PATIENCE", 0.0)
    with ProgressBar(None) as bar:
        bar.advance()
        bar.expect(2)
        bar.advance()
    first, last, gone = notebook.shown
    assert first == '<progress aria-label="Progress"></progress> 1 batches'
    assert 'value="2" max="2"' in last and gone == ""


def test_a_progress_bar_in_a_terminal_does_not_warn(monkeypatch):
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)  # as in a notebook without ipywidgets
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ProgressBar(2, shown=True) as bar:
            bar.advance()
            bar.advance()
