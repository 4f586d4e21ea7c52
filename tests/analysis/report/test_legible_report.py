"""The report at 1,280 and 400 pixels, light and dark: no text is cut, hidden by other text, pale, or there twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shardc
from shardc.analysis.report.gather import report_data
from shardc.analysis.report.page import page
from tests.analysis.report.browser import Browser, Tab, need_chromium
from tests.analysis.report.legibility import cut_text, equal_labels, equal_rows, low_contrast, overlapping_text

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"
SECTIONS = ("plan", "structure", "operations", "collectives", "graph", "timeline", "memory", "traffic", "tensors")

#: What each check has to find: pale text, text on text, text that a box cuts, two equal buttons, two equal rows.
BAD = """<!doctype html><body style="background: #fff">
<p style="color: #999">pale</p>
<p style="position: absolute; top: 200px; left: 9px">below</p>
<p style="position: absolute; top: 200px; left: 12px">on</p>
<p style="overflow: hidden; width: 4em; white-space: nowrap">this is longer than its box</p>
<form><button>go</button> <button>go</button></form>
<table><tbody><tr><td>one</td></tr><tr><td>one</td></tr><tr><td>two</td></tr></tbody></table>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Tab:
    partitioned = shardc.load(DEMO).propagate().partition()
    simulation, explanation = partitioned.simulate("h100-dgx"), partitioned.explanation("h100-dgx")
    path = tmp_path_factory.mktemp("page") / "page.html"
    data = report_data(partitioned, simulation=simulation, explanation=explanation, bandwidth=3.35e12)
    path.write_text(page(data), encoding="utf-8")
    return browser.open(path)


def test_each_check_finds_its_fault(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(BAD, encoding="utf-8")
    tab = browser.open(tmp_path / "bad.html")
    assert [text.split(": ")[-1] for text in low_contrast(tab)] == ["pale"]
    assert overlapping_text(tab) == ["p.: below / p.: on"]
    assert cut_text(tab) == ["p.: this is longer than its box"]
    assert len(equal_labels(tab)) == 1 and "go" in equal_labels(tab)[0]
    assert equal_rows(tab) == ["one"]
    tab.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_can_be_read(tab: Tab, width: int) -> None:
    tab.resize(width=width, height=900)
    for section in SECTIONS:
        tab.eval(f"document.getElementById('{section}')?.scrollIntoView()")
        tab.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.eval("document.querySelectorAll('details').forEach((e) => (e.open = true))")
    for dark in (False, True):
        tab.dark(dark)
        assert low_contrast(tab) == []
    tab.dark(False)
    assert (overlapping_text(tab), cut_text(tab), equal_labels(tab), equal_rows(tab)) == ([], [], [], [])
