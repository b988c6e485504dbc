"""The page of a trace: its data, and how it behaves in a browser."""

import base64
import hashlib
import html
import json
import re
import shutil
import time
from contextlib import nullcontext
from importlib.util import find_spec

import numpy as np
import pytest
from growth import measured_until
from traced import Doubled, X, chain

import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.passes import RemoveDeadOps, events
from minigraph.passes.base import Pass
from minigraph.rewrite.tracing.page import data, page

pytestmark = pytest.mark.slow  # each test opens a browser

TEXT, TYPE, ROLE, READS, WRITES, SITE, DEPTH = range(7)


class ReplaceFirst(Pass):
    """Replace the first scale by another operator with the same result."""

    def apply(self, program):
        block = program.global_block()
        op = block.ops[0]
        events.fired(self, program, [op])
        block.insert(op, "scale", op.inputs, op.outputs, {"scale": 0.5, "bias": 0.25})
        block.remove(op)
        return True


def rows_of(found, step):
    """The rows of a step, as the script of the page finds them."""
    if step < 0:
        return []
    old, rows, at = rows_of(found, found["steps"][step]["base"]), [], 0
    for position, gone, *fresh in found["steps"][step]["rows"]:
        rows += old[at:position]
        rows += zip(fresh[::2], fresh[1::2], strict=True)
        at = position + gone
    return rows + old[at:]


def texts_of(found, step):
    return [found["lines"][line][TEXT] for line, _ in rows_of(found, step)]


def network(depth, clip=True):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = x = fluid.data("x", [None, 8])
        for _ in range(depth):
            hidden = layers.fc(hidden, 8, act="tanh")
        loss = layers.mean(layers.square(hidden) + x)
        strategy = fluid.clip.GradientClipByGlobalNorm(1.0) if clip else None
        fluid.optimizer.Adam(0.01, grad_clip=strategy).minimize(loss)
    return main, startup, loss


def build_and_run(depth):
    main, startup, loss = network(depth)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    executor.run(main, feed={"x": np.ones((4, 8), "float32")}, fetch_list=[loss], scope=scope)


# Data


def test_the_rows_of_every_step_are_the_lines_of_its_text():
    with rewrite.trace() as t:
        build_and_run(2)
    found = data(t)
    for step in t.steps:
        lines = [line.strip() for line in step.text.split("\n")]
        shown = texts_of(found, step.number)
        missing = [line for line in lines if line not in set(shown)]
        assert all(line.startswith(("block ", "program ", "var ")) for line in missing)
        assert shown == [line for line in lines if line not in missing]


def test_sub_blocks_stand_below_their_operator():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2, 4])
        out = layers.cond(layers.reduce_sum(x) > 0, lambda: layers.scale(x, 2.0), lambda: layers.scale(x, 3.0))
        layers.tanh(out)
    with rewrite.trace(main) as t:
        pass
    found = data(t)
    shown = [(found["lines"][line][TYPE], found["lines"][line][DEPTH]) for line, _ in rows_of(found, 0)]
    at = shown.index(("conditional_block", 0))
    assert shown[at : at + 3] == [("conditional_block", 0), ("scale", 1), ("assign", 1)]
    assert shown[-1] == ("tanh", 0)


def test_a_row_keeps_its_identity_when_its_line_changes():
    main, _ = chain()
    with rewrite.trace(main) as t:
        Doubled().apply(main)
        ReplaceFirst().apply(main)
        RemoveDeadOps()(main)
    found = data(t)
    identities = [[identity for _, identity in rows_of(found, step)] for step in range(len(t.steps))]
    assert identities[0] == identities[1] == identities[2] == identities[3]
    assert len(identities[4]) == len(identities[3]) - 1
    assert texts_of(found, 0) != texts_of(found, 1) != texts_of(found, 2)
    assert found["steps"][2]["matched"] == [identities[0][1]]


def test_a_step_has_its_figures():
    main, _ = chain()
    with rewrite.trace(main, feed={"x": X}) as t:
        RemoveDeadOps().apply(main)
        Doubled().apply(main)
    _, removed, doubled = data(t)["steps"]
    assert (removed["name"], removed["operators"], removed["difference"], removed["wrong"]) == (
        "RemoveDeadOps", 3, "none", False,
    )  # fmt: skip
    assert removed["site"].endswith("in: class RemoveDeadOps(Pass):")
    assert (doubled["difference"], doubled["wrong"]) == ("0.5 in scale_0.tmp_0", True)


def test_data_end_no_element_of_the_page():
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("</script><script>alert(1)</script><!--", [2])
        layers.scale(x, 2.0, name="\u2028")
    with rewrite.trace(main) as t:
        pass
    text = page(t)
    assert text.count("</script>") == 2
    assert "<!--" not in text
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert json.loads(held) == json.loads(json.dumps(data(t)))


def test_the_page_asks_for_nothing_and_runs_its_own_script_only(tmp_path):
    main, _ = chain()
    with rewrite.trace(main) as t:
        RemoveDeadOps().apply(main)
    t.save(tmp_path / "steps.html")
    text = (tmp_path / "steps.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\bsrc=|@import|url\(", text)
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_a_notebook_shows_the_page_in_a_frame():
    main, _ = chain()
    with rewrite.trace(main) as t:
        pass
    frame = t._repr_html_()
    assert frame.startswith("<iframe ")
    assert html.escape(page(t), quote=True) in frame


@pytest.mark.slow
def test_a_large_trace_fits_into_two_megabytes():
    with rewrite.trace(feed={"x": np.ones((4, 8), "float32")}) as t:
        build_and_run(72)
    assert max(step.operators for step in t.steps) >= 1000
    assert len(page(t).encode()) <= 2_000_000


@pytest.mark.slow
@pytest.mark.timing
def test_tracing_takes_at_most_twice_the_time():
    def attempt():
        times = {"plain": [], "traced": []}
        for _ in range(5):
            begin = time.perf_counter()
            build_and_run(72)
            times["plain"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            with rewrite.trace(feed={}):
                build_and_run(72)
            times["traced"].append(time.perf_counter() - begin)
        return min(times["traced"]) / min(times["plain"])

    build_and_run(72)
    assert measured_until(lambda ratio: ratio <= 2, attempt) <= 2


@rewrite.rule
def relus(x):
    return layers.relu(layers.relu(x))


@relus.to
def _(x):
    return layers.relu(x)


@pytest.mark.timing
def test_tracing_many_firings_takes_at_most_twice_the_time():
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        main.roots = tuple(layers.relu(layers.relu(x)).name for _ in range(750))

    def seconds(is_traced):
        twin = main.clone()
        begin = time.perf_counter()
        with rewrite.trace(twin) if is_traced else nullcontext():
            relus.apply(twin)
        return time.perf_counter() - begin

    def attempt():
        times = [(seconds(False), seconds(True)) for _ in range(5)]
        plain, traced = map(min, zip(*times, strict=True))
        return traced / plain

    attempt()
    assert measured_until(lambda ratio: ratio <= 2, attempt) <= 2


# In a browser


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install playwright")
    if program is None:
        pytest.skip("there is no Chromium on the path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trace of building and running a clipped program, whose second pass over it is wrong, and its page."""
    with rewrite.trace(feed={"x": np.ones((4, 8), "float32")}) as t:
        build_and_run(3)
    path = tmp_path_factory.mktemp("trace") / "steps.html"
    t.save(path)
    return t, path


@pytest.fixture
def opened(browser, saved):
    """The page in a window of a desk, and what went wrong in it."""
    errors = []
    window = browser.new_page(viewport={"width": 1280, "height": 800})
    window.on("pageerror", lambda error: errors.append(str(error)))
    window.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    window.on("request", lambda request: errors.append(request.url) if not request.url.startswith("file:") else None)
    window.goto(saved[1].as_uri())
    yield window
    assert errors == []
    window.close()


def current(window):
    return window.text_content("#steps [aria-current] .name")


def test_keys_slider_and_list_go_through_the_steps(opened):
    assert current(opened) == "append_backward"
    opened.keyboard.press("ArrowRight")
    assert current(opened) == "GradientClipByGlobalNorm"
    assert opened.text_content("#step strong") == "GradientClipByGlobalNorm"
    assert opened.locator(".row.added").count() > 5
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("ArrowLeft")
    assert current(opened) == "start"
    opened.locator("#slider").focus()
    opened.keyboard.press("End")
    assert current(opened) == "AdamOptimizer"
    assert opened.text_content("#position") == "4 / 4"
    opened.click("#steps li:nth-child(2) button")
    assert current(opened) == "append_backward"
    opened.click("#forth")
    assert current(opened) == "GradientClipByGlobalNorm"


def test_a_row_keeps_its_element_from_step_to_step(opened):
    opened.evaluate("document.querySelector('.row .type').closest('.row').kept = true")
    opened.keyboard.press("ArrowLeft")
    assert opened.evaluate("[...document.querySelectorAll('.row')].some((row) => row.kept)")


def test_programs_are_opened_by_key_and_by_list(opened):
    opened.keyboard.press("]")
    assert "startup program" in opened.text_content(".pane h2")
    opened.select_option("#track", "3")
    assert "private copy of" in opened.text_content(".pane h2")
    opened.check("#idle")
    assert opened.locator("#steps .idle").count() > 10


def test_an_operator_shows_what_it_reads_and_where_it_was_made(opened):
    opened.locator(".row", has_text="mean_grad").first.click()
    details = opened.text_content("#details")
    assert "of fill_constant" in details
    assert "test_trace_page.py" in details
    assert opened.locator("path.lane.strong").count() > 0
    opened.keyboard.press("ArrowDown")
    assert opened.get_attribute(".row[aria-selected=true]", "data-at") is not None
    opened.keyboard.press("Escape")
    assert opened.is_hidden("#details")


def test_two_programs_stand_side_by_side(opened):
    opened.keyboard.press("ArrowRight")
    opened.select_option("#other", "before")
    assert opened.locator(".pane").count() == 2
    left, right = (opened.locator(".pane").nth(at) for at in (0, 1))
    assert left.locator(".row.gap").count() == right.locator(".row.added").count() > 0
    opened.evaluate("document.querySelectorAll('.list')[1].scrollTop = 100")
    opened.wait_for_function("document.querySelectorAll('.list')[0].scrollTop === 100")


def test_search_finds_lines_and_goes_through_them(opened):
    opened.keyboard.press("/")
    opened.keyboard.type("tanh_grad")
    assert opened.text_content("#hits") == "1 of 3"
    opened.keyboard.press("Enter")
    assert opened.text_content("#hits") == "2 of 3"
    assert "tanh_grad" in opened.text_content(".row[aria-selected=true]")
    opened.keyboard.press("Escape")
    assert opened.text_content("#hits") == ""


def test_a_trace_of_nothing_says_so(browser, tmp_path):
    with rewrite.trace() as t:
        pass
    t.save(tmp_path / "steps.html")
    errors = []
    window = browser.new_page()
    window.on("pageerror", lambda error: errors.append(str(error)))
    window.goto((tmp_path / "steps.html").as_uri())
    window.keyboard.press("ArrowRight")
    assert window.text_content("#step") == "No program was rewritten."
    assert errors == []
    window.close()


def test_the_page_fits_a_telephone(browser, saved):
    window = browser.new_page(viewport={"width": 390, "height": 844})
    window.goto(saved[1].as_uri())
    assert window.evaluate("document.documentElement.scrollWidth") <= 390
    assert window.evaluate("document.querySelector('.list').clientHeight") > 250
    window.click("#forth")
    assert current(window) == "GradientClipByGlobalNorm"
    window.close()


def test_the_colours_follow_the_reader(browser, saved):
    seen = set()
    for scheme in ("light", "dark"):
        window = browser.new_page(color_scheme=scheme)
        window.goto(saved[1].as_uri())
        seen.add(window.evaluate("getComputedStyle(document.body).backgroundColor"))
        window.close()
    assert len(seen) == 2


@pytest.mark.slow
@pytest.mark.timing
def test_a_large_page_opens_within_a_second(browser, tmp_path):
    with rewrite.trace() as t:
        build_and_run(72)
    t.save(tmp_path / "steps.html")

    def attempt():
        times = []
        for _ in range(3):
            window = browser.new_page()
            begin = time.perf_counter()
            window.goto((tmp_path / "steps.html").as_uri())
            window.wait_for_selector(".row")
            times.append(time.perf_counter() - begin)
            window.close()
        return min(times)

    assert measured_until(lambda seconds: seconds < 1, attempt) < 1
