"""The HTML page of a report: read as text, and looked at in a headless browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import minigraph as fluid
from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm
from minigraph.comparison.panels import MOST_PARAMETERS
from minigraph.comparison.wording import ALL_TOGETHER
from minigraph.parallel import NormsOverRanks

pytest.importorskip("matplotlib", reason="needs the extra [plot]")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed: none of {', '.join(BROWSERS)} is on PATH"
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr",
]  # fmt: skip

NASTY = "<script>alert(1)</script> & \"$x^2$' _"
CLIPS = {"norm 1": GradientClipByNorm(1.0), NASTY: GradientClipByGlobalNorm(0.5), "raw": None}
VOID = {"meta", "br", "path", "use", "img", "link"}


def network():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        hidden = fluid.layers.fc(x, 3, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 2)))
    feeds = [{"x": np.random.default_rng(i).normal(size=(8, 4)).astype("float32")} for i in range(5)]
    return main, startup, loss, feeds


@pytest.fixture(scope="module")
def gradients():
    main, startup, loss, feeds = network()
    return fluid.compare_gradients(main, loss, CLIPS, feeds, startup=startup, settings={"note": NASTY})


@pytest.fixture(scope="module")
def training():
    main, startup, loss, feeds = network()
    return fluid.compare_training(
        main, loss, CLIPS, feeds, epochs=3, evaluate=feeds[:2], startup=startup,
        optimizer=lambda: fluid.optimizer.SGD(1e12),
    )  # fmt: skip


@pytest.fixture(scope="module", params=["gradients", "training"])
def report(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def file(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.save_html(path)
    return path


class Page(HTMLParser):
    """A page taken apart: its elements, the rows of its tables, its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.rows, self.text, self.cell = [], [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.cell = self.rows[-1]

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)
        if self.cell is not None:
            self.cell[-1] += data

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


def check(page, report):
    """What has to be on the page, as it was written and as a browser reads it."""
    elements = page.elements
    assert dict(elements)["html"] == {"lang": "en"}
    assert page.count("title") >= 1 and page.count("h1") == page.count("main") == 1
    assert page.count("script") == page.count("img") == page.count("link") == 0
    pictures = [attributes for tag, attributes in elements if tag == "svg" and "aria-hidden" not in attributes]
    assert len(pictures) >= 4
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)
    assert page.count("figure") == page.count("figcaption") == len(pictures)
    assert page.count("details") == 1 + sum(strategy is not None for strategy in CLIPS.values())
    assert page.count("ul") == 1  # one legend
    assert all("".join(cell).strip() for row in page.rows for cell in row)
    assert page.count("table") == page.count("caption") == page.count("thead") >= 4
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in elements if tag == "th")
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in elements:
        for name in ("href", "xlink:href", "src"):
            if name in attributes:
                assert attributes[name].startswith("#"), (tag, attributes)
                assert attributes[name][1:] in ids
    firsts = [row[0] for row in page.rows]
    for name in CLIPS:
        assert name in firsts
    assert [row for row in page.rows if row[0] == ALL_TOGETHER]
    text = "".join(page.text)
    assert NASTY in text
    for line in report.diff("norm 1").split("\n"):
        assert line in text


@pytest.mark.slow
def test_the_page_is_whole_and_escaped(file, report):
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    check(page, report)
    assert "<script" not in text
    assert "alert(1)</script>" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.slow
def test_the_page_needs_nothing_from_elsewhere(file):
    text = file.read_text(encoding="utf-8")
    assert re.findall(r"https?:|//[a-z]|@import|url\((?!#)", text) == []
    assert "default-src 'none'" in text


@pytest.mark.slow
def test_equal_reports_make_equal_pages(report, file):
    assert report.html() == file.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_summary_has_the_numbers_of_the_report(gradients):
    rows = Page(gradients.html()).rows
    for name in CLIPS:
        row = next(row for row in rows if row[0] == name)
        total = gradients[name].total
        assert float(row[1]) == pytest.approx(total.norm_before.mean(), rel=1e-3)
        assert float(row[2]) == pytest.approx(total.norm_after.mean(), rel=1e-3)
        assert float(row[3]) == pytest.approx((total.norm_after / total.norm_before).mean(), abs=1e-4)
        assert row[5] == f"{total.clipped.mean():.0%}"


@pytest.mark.slow
def test_the_page_says_where_a_run_diverged(training):
    assert training["raw"].diverged_at is not None
    row = next(row for row in Page(training.html()).rows if row[0] == "raw")
    assert row[-1] == str(training["raw"].diverged_at)
    assert f"raw at step {training['raw'].diverged_at}" in training.html()


@pytest.mark.slow
def test_of_many_parameters_the_largest_are_drawn_and_all_are_listed():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        for _ in range(10):
            x = fluid.layers.fc(x, 2)
        loss = fluid.layers.mean(x)
    feeds = [{"x": np.ones((1, 2), "float32")}]
    report = fluid.compare_gradients(main, loss, {"norm": GradientClipByNorm(0.1)}, feeds, startup=startup)
    norms = {name: statistics.norm_before[0] for name, statistics in report["norm"].parameters.items()}
    largest = sorted(norms, key=norms.get, reverse=True)[:MOST_PARAMETERS]
    page = report.html()
    drawn = {name for name in norms if f"<figcaption>{name}" in page}
    assert drawn == set(largest)
    rows = [row[0] for row in Page(page).rows]
    assert all(rows.count(name) == 2 for name in norms)


@pytest.mark.slow
def test_the_page_may_show_norms_over_ranks(report, file, tmp_path):
    assert 'id="ranks"' not in file.read_text(encoding="utf-8")
    report.save_html(tmp_path / "page.html", NormsOverRanks((3.0, 4.0), 0.5, 1.0))
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.open == []
    rows = [row for row in page.rows if "rank" in row[0]]
    assert rows == [["rank 0 alone", "3", "0.333333"], ["rank 1 alone", "4", "0.25"], ["all ranks", "0.5", "1"]]


def test_a_report_without_strategies_has_a_page():
    main, startup, loss, feeds = network()
    text = fluid.compare_gradients(main, loss, {}, feeds, startup=startup).html()
    assert Page(text).open == []


# In a browser


def browse(tmp_path, file, *flags):
    """Run the browser on the page with a profile of its own; gives what it prints, and what it logs."""
    profile = tmp_path / "profile"
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", *flags, file.as_uri()]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


@pytest.mark.slow
@needs_browser
def test_a_browser_reads_the_page_as_it_was_meant(tmp_path, file, report):
    dom, log = browse(tmp_path, file, "--dump-dom")
    page = Page(dom)
    check(page, report)
    assert len(page.rows) == len(Page(file.read_text(encoding="utf-8")).rows)
    # A script that ran, a style that was refused, or anything asked for elsewhere shows in the console.
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []


MEASURE = """<!DOCTYPE html><iframe src="{page}" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre id="found"></pre><script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const outside = [...page.querySelectorAll("main *, header *")].filter(
    (part) => !part.closest(".scroll, pre, svg") && part.getBoundingClientRect().right > root.clientWidth + 1);
  const heights = [...page.querySelectorAll("figure svg")].map((svg) => {{
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const text = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
    return Math.min(...text.map((text) => scale * parseFloat(getComputedStyle(text).fontSize)));
  }});
  document.querySelector("#found").textContent = JSON.stringify([root.clientWidth, root.scrollWidth, outside.length,
    heights, [...page.querySelectorAll(".scroll")].map((table) => getComputedStyle(table).overflowX)]);
}});
</script>"""


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window_and_its_pictures_can_be_read(tmp_path, file, width):
    frame = tmp_path / "frame.html"
    frame.write_text(MEASURE.format(page=file.as_uri(), width=width), encoding="utf-8")
    dom, _ = browse(tmp_path, frame, "--dump-dom", "--allow-file-access-from-files", "--window-size=1400,1000")
    client, scrolled, outside, heights, overflow = json.loads(re.search(r'<pre id="found">(.*?)</pre>', dom)[1])
    assert client == scrolled == width
    assert outside == 0
    assert len(heights) >= 4
    assert min(heights) >= 11
    assert set(overflow) == {"auto"}  # tables scroll within the page


def screenshot(tmp_path, file, *flags):
    """The page as an array of pixels, ``[height, width, 3]``, 0 to 1."""
    from matplotlib.image import imread

    picture = tmp_path / "page.png"
    browse(tmp_path, file, f"--screenshot={picture}", "--window-size=1000,3000", *flags)
    return imread(picture)[..., :3]


@pytest.mark.slow
@needs_browser
def test_the_page_is_not_blank_in_light_and_in_dark(tmp_path, file):
    means = []
    for number, scheme in enumerate(("1", "0")):
        folder = tmp_path / str(number)
        folder.mkdir()
        pixels = screenshot(folder, file, f"--blink-settings=preferredColorScheme={scheme}")
        colors = (pixels * 255).round().astype(int) @ [1, 256, 65536]
        assert len(np.unique(colors)) > 100
        background = pixels[2, 2]
        is_drawn = np.abs(pixels - background).max(axis=2) > 0.2
        assert 0.01 < is_drawn.mean() < 0.5
        assert is_drawn[:1500].any(axis=1).mean() > 0.2  # down the whole page
        means.append(background.mean())
    assert means[0] > 0.9
    assert means[1] < 0.2
