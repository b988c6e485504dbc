"""Values that draw themselves in a notebook: the notebook is executed, and its page looked at in a browser."""

import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient, of the extra [test]")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient, of the extra [test]")
pytest.importorskip("ipykernel", reason="needs ipykernel, of the extra [test]")

ROOT = Path(__file__).resolve().parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

pytestmark = pytest.mark.slow

CELLS = {
    "setup": """
import numpy as np
import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.comparison.progress import ProgressBar

main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup), fluid.unique_name.guard():
    x = fluid.data("x", [None, 4])
    count, limit = (layers.fill_constant([1], "int64", value) for value in (0, 3))
    hidden, goes_on = layers.fc(x, 3), layers.less_than(count, limit)
    with layers.While(goes_on).block():
        layers.assign(layers.scale(hidden, 2.0), hidden)
        layers.increment(count)
        layers.less_than(count, limit, cond=goes_on)
    loss = layers.mean(layers.square(layers.fc(x, 2)))
    before = main.clone()
    clip = fluid.clip.GradientClipByNorm(1.0)
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
exe, feed = fluid.Executor(), {"x": np.ones((2, 4), "float32")}
_ = exe.run(startup)
""",
    "program": "main",
    "block": "main.block(1)",
    "large program": """
large = fluid.Program()
with fluid.program_guard(large):
    for _ in range(1500):
        layers.scale(fluid.layers.fill_constant([2], "float32", 1.0), 2.0)
large
""",
    "difference": "fluid.diff(before, main)",
    "clips": "fluid.clip.explain(main)",
    "run": "exe.explain(main, feed=feed, fetch_list=[loss])",
    "profile": """
with fluid.profiler.profile() as profile:
    exe.run(main, feed=feed, fetch_list=[loss])
profile
""",
    "report": """
report = fluid.compare_gradients(before, loss.name, {"norm": clip}, [feed] * 3, startup=startup, progress=True)
report
""",
    "strategy": "report['norm']",
    "finished progress": """
with ProgressBar(4, shown=True) as bar:
    for _ in range(4):
        bar.advance()
""",
    "counter-example": """
def forgets_scales(program):
    for op in program.global_block().ops.of_type("scale"):
        op.attrs = {**op.attrs, "scale": 1.0}
        return True
    return False

rewrite.check(forgets_scales, programs=200)
""",
    "trace": """
from minigraph.passes import CleanUp
with rewrite.trace(main) as trace:
    CleanUp().apply(main.clone())
trace
""",
    "score": "rewrite.score(CleanUp(), before, feed=feed)",
    "progress": """
bar = ProgressBar(4, shown=True)
bar.advance()
""",
}


@pytest.fixture(scope="module")
def outputs():
    """What each cell shows, as HTML."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    shown = {}
    for name, cell in zip(CELLS, notebook.cells, strict=True):
        data = [output.data for output in cell.outputs if output.output_type in ("execute_result", "display_data")]
        assert [output.text for output in cell.outputs if output.output_type == "stream"] == [], name
        shown[name] = "".join(each.get("text/html", "") for each in data)
    return shown


def test_every_value_draws_itself(outputs):
    assert [name for name, html in outputs.items() if not html] == ["setup", "finished progress"]
    assert "1 of 4 batches" in outputs["progress"] and "<progress" in outputs["progress"]
    assert all(len(html) < 500_000 for html in outputs.values())


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if BROWSER is None:
        pytest.skip("needs a browser: none is on PATH")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])


@pytest.fixture(params=["light", "dark"])
def page(request, browser, outputs):
    """The outputs below each other, as a notebook in this theme shows them."""
    cells = "".join(f'<div id="{name.replace(" ", "-")}">{html}</div>' for name, html in outputs.items())
    ground, ink = {"light": ("#ffffff", "#000000"), "dark": ("#111111", "#ffffff")}[request.param]
    page = browser.new_page(viewport={"width": 900, "height": 800})
    requests = []
    page.on("request", lambda each: requests.append(each.url))
    is_light = str(request.param == "light").lower()
    page.set_content(
        f'<body data-jp-theme-light="{is_light}" style="background: {ground}; color: {ink}">{cells}</body>'
    )
    yield page
    assert requests == []
    page.close()


CONTRASTS = """() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => { const [r, g, b] = parts(color).map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = node => {
    const color = getComputedStyle(node).backgroundColor, rgba = parts(color);
    return rgba.length < 4 || rgba[3] > 0 ? color : ground(node.parentElement);
  };
  const found = {};
  for (const node of document.querySelectorAll(".code *, .minigraph p, .minigraph summary b")) {
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    found[`${node.tagName} ${node.className}`] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return found;
}"""


def test_text_is_readable_in_light_and_dark(page):
    contrasts = page.evaluate(CONTRASTS)
    assert {"B clip", "B backward", "INS ", "SPAN fields"} <= contrasts.keys()
    assert {kind: round(ratio, 1) for kind, ratio in contrasts.items() if ratio < 4.5} == {}


def test_purposes_have_colours_of_their_own(page):
    colors = "nodes => nodes.map(node => getComputedStyle(node).color)"
    counted = page.eval_on_selector_all("#program .minigraph > details > summary b", colors)
    assert len(counted) == len(set(counted)) == 5


def test_a_sub_block_unfolds_below_its_operator(page):
    inside = page.locator("#program details details .heading")
    assert inside.inner_text() == "block 1 parent 0"
    operator = page.locator("#program details details > summary").filter(has_text="while")
    operator.click()
    assert not inside.is_visible()
    operator.click()
    assert inside.is_visible()


def test_a_large_program_is_folded(page):
    box = page.locator("#large-program").bounding_box()
    assert box["height"] < 800
    page.locator("#large-program summary").filter(has_text="3,000 forward operators").click()
    assert "2,000 lines more" in page.locator("#large-program").inner_text()


def test_lines_name_the_users_line(page):
    assert "hidden, goes_on" in page.locator("#program .code span[title]").filter(has_text="mul").first.get_attribute(
        "title"
    )


def test_what_is_wide_scrolls_in_its_place(page):
    page.set_viewport_size({"width": 400, "height": 800})
    for summary in page.locator("summary").all():
        if summary.is_visible() and summary.evaluate("node => !node.parentElement.open"):
            summary.click()
    widths = page.eval_on_selector_all("body > div", "nodes => nodes.map(node => [node.id, node.scrollWidth])")
    assert [name for name, width in widths if width > 400] == []
