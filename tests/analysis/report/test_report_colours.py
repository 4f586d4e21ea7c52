"""A kind of work has one colour in all charts, every two kinds are told apart, and no colour is left unexplained."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import shardc
import shardc.numpy
from shardc.analysis.categories import _GROUPS
from shardc.analysis.report.gather import report_data
from shardc.analysis.report.page import page, page_parts
from shardc.hlo.ir.mesh import Mesh
from shardc.stages.stages import Partitioned
from tests.analysis.report.browser import Browser, Tab, need_chromium
from tests.analysis.report.kinds import distance, kind_colours
from tests.analysis.simulate.fake_simulation import fake_simulation

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"
COLLECTIVES = {"all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute", "other collective"}
SECTIONS = ("structure", "operations", "collectives", "graph", "timeline")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def partitioned() -> Partitioned:
    return shardc.load(DEMO).partition()


@pytest.fixture(scope="module")
def tab(browser: Browser, partitioned: Partitioned, tmp_path_factory: pytest.TempPathFactory) -> Tab:
    data = report_data(partitioned, simulation=partitioned.simulate("h100-dgx"), bandwidth=3.35e12)
    return opened(browser, tmp_path_factory.mktemp("page"), page(data))


def opened(browser: Browser, folder: Path, text: str) -> Tab:
    (folder / "page.html").write_text(text, encoding="utf-8")
    tab = browser.open(folder / "page.html")
    for section in SECTIONS:
        tab.eval(f"document.getElementById('{section}').scrollIntoView()")
        tab.wait(f"document.querySelector('#{section}').children.length > 1")
    tab.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return tab


def test_every_kind_of_work_has_a_colour() -> None:
    kinds = {*_GROUPS.values(), "copies", "host moves", "other", *COLLECTIVES} - {"collectives"}
    style, script = page_parts()
    assert set(kind_colours()) == {f"kind-{kind.replace(' ', '-')}" for kind in kinds}
    for name in kind_colours():
        assert f".{name} {{ --tint: var(--{name}); }}" in style
    assert all(f"'{kind}'" in script for kind in kinds)


def test_any_two_kinds_are_told_apart() -> None:
    """Five times what is just seen, and so is each kind from the paper that it is drawn on."""
    colours = kind_colours()
    near = {(a, b): distance(colours[a], colours[b]) for a, b in itertools.combinations(colours, 2)}
    assert {pair: d for pair, d in near.items() if d < 0.1} == {}
    assert {
        name: d for name, c in colours.items() for paper in ("#ffffff", "#14181e") if (d := distance(c, paper)) < 0.1
    } == {}


def test_a_kind_has_one_colour_in_all_sections(tab: Tab) -> None:
    look = """[...document.querySelectorAll('.swatch.tinted, .badge.operation')].filter((e) => e.checkVisibility())
        .map((e) => [e.closest('section').id, e.title || e.innerText, getComputedStyle(e).backgroundColor])"""
    seen: dict[str, set[str]] = {}
    where: dict[str, set[str]] = {}
    for section, kind, colour in tab.eval(look):
        seen.setdefault(kind, set()).add(colour)
        where.setdefault(kind, set()).add(section)
    assert {kind: colours for kind, colours in seen.items() if len(colours) > 1} == {}
    assert len({colour for colours in seen.values() for colour in colours}) == len(seen)
    assert where["all-reduce"] >= {"structure", "operations", "collectives", "timeline"}
    assert where["matrix products"] >= {"structure", "operations", "timeline"}
    box = "getComputedStyle(document.querySelector('#graph .kind-all-reduce > rect')).fill"
    assert tab.eval(box) in seen["all-reduce"]


@pytest.mark.parametrize("section", ["timeline", "operations"])
def test_a_chart_has_the_colours_of_its_legend_and_no_others(tab: Tab, section: str) -> None:
    """Of the colours of kinds, those that are on the canvas."""
    colours = {tuple(bytes.fromhex(c[1:])): name for name, c in kind_colours().items()}
    if section == "operations":  # dots are translucent: the legend has the kinds of kernels with arithmetic
        legend = tab.eval("[...document.querySelectorAll('#operations .legend .swatch')].map((e) => e.title)")
        assert set(legend) == {"matrix products", "reductions", "elementwise", "gathers and scatters"}
        return
    pixels = """(() => {
        const c = document.querySelector('#timeline canvas');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const found = new Set();
        for (let n = 0; n < d.length; n += 4) found.add(`${d[n]},${d[n + 1]},${d[n + 2]}`);
        return [...found];
    })()"""
    seen = {colours.get(tuple(map(int, text.split(",")))) for text in tab.eval(pixels)} - {None}  # type: ignore[arg-type]
    legend = tab.eval("[...document.querySelectorAll('#timeline .legend .tinted')].map((e) => e.title)")
    assert seen == {f"kind-{kind.replace(' ', '-')}" for kind in legend}


#: What a canvas writes and where, when it is drawn again.
WRITTEN = """(async () => {
    const out = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { out.push([text, x, y]); };
    document.querySelector('#timeline button[title="show all"]').click();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    CanvasRenderingContext2D.prototype.fillText = write;
    return out;
})()"""


def nanoseconds(label: str) -> float:
    number, unit = label.split() if label != "0" else ("0", "ns")
    return float(number) * {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]


def test_the_timeline_is_to_scale_and_its_bands_are_labelled(
    browser: Browser, partitioned: Partitioned, tmp_path: Path
) -> None:
    simulation = fake_simulation()
    tab = opened(browser, tmp_path, page(report_data(partitioned, simulation=simulation)))
    written = tab.eval(WRITTEN)
    bottom = max(y for _, _, y in written)
    ticks = [(nanoseconds(text), x) for text, x, y in written if y == bottom and text[0].isdigit()]
    places = [x for _, x in sorted(set(ticks))[1:-1]]  # the outer ones are kept within the picture
    steps = [b - a for a, b in itertools.pairwise(places)]
    assert len(places) >= 3 and max(steps) - min(steps) < 0.5
    texts = {text for text, _, _ in written}
    assert texts >= {event.engine for event in simulation.events}
    assert any("more iterations" in text for text in texts)
    assert "iterations like the one before" in tab.eval("document.querySelector('#timeline .legend').innerText")
    tab.eval("document.querySelector('#timeline canvas').scrollIntoView({block: 'center'})")
    left, top = tab.eval("(({x, y}) => [x, y])(document.querySelector('#timeline canvas').getBoundingClientRect())")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + 700, y=top + 34)  # in the frame, on compute
    assert "in while.7 iteration 2" in tab.eval("document.querySelector('#timeline .info').innerText")
    tab.close()


@pytest.mark.parametrize(("parts", "coloured"), [(4, True), (8, True), (32, False)])
def test_parts_have_colours_only_where_each_has_its_own(
    browser: Browser, tmp_path: Path, parts: int, coloured: bool
) -> None:
    x = np.zeros((320, 8), np.float32)
    mesh, split = Mesh({"x": parts}), (shardc.P("x"),)
    partitioned = shardc.trace(shardc.numpy.tanh, x, mesh=mesh, in_shardings=split).partition()
    tab = opened(browser, tmp_path, page(report_data(partitioned)))
    tab.eval("document.getElementById('tensors').scrollIntoView()")
    tab.wait("document.querySelector('#tensors tbody tr') !== null")
    tab.eval("document.querySelector('#tensors button.opener').click()")
    look = "[...document.querySelectorAll('#tensors .detail .part')].map((e) => getComputedStyle(e).backgroundColor)"
    colours = tab.eval(look)
    assert len(set(colours)) == (len(colours) if coloured else 1)
    said = tab.eval("document.querySelector('#tensors .detail').innerText")
    assert ("each part has its colour" in said) == coloured
    tab.close()


def test_a_step_and_the_numbers_of_the_memory_table_are_explained(tab: Tab) -> None:
    assert "A step is one run of the program." in tab.eval("document.querySelector('header').innerText")
    tab.eval("document.getElementById('memory').scrollIntoView()")
    tab.wait("document.querySelector('#memory tbody tr') !== null")
    said = tab.eval("document.getElementById('memory').innerText")
    assert "Kernels and transfers of the program are numbered in order" in said and "in memory" in said


def test_numbers_have_few_digits_and_units_of_one_kind(tab: Tab) -> None:
    """Bytes by powers of 1024, times with three digits."""
    tab.eval("['traffic', 'tensors', 'memory'].forEach((s) => document.getElementById(s).scrollIntoView())")
    said = tab.eval("document.querySelector('main').innerText")
    assert re.findall(r"\d (?:kB|KB|MB|GB|TB)\b", said) == []
    assert re.findall(r"\d\.\d{3,} (?:s|ms|us|ns|[KMGT]iB|[kMGTP]?flop)", said) == []


def test_every_colour_that_a_page_uses_is_defined() -> None:
    """Of the report and of the explorer, in styles and in scripts; scripts set the shares of bars."""
    report, explorer = (resources.files(f"shardc.{where}") for where in ("analysis.report", "service.explorer"))
    texts = [
        f.read_text() for folder in (report, explorer) for f in folder.iterdir() if f.name.endswith((".css", ".js"))
    ]
    text = "\n".join(texts)
    used = {*re.findall(r"var\(--([\w-]+)\)", text), *re.findall(r"\bcolour\('([\w-]+)'\)", text)}
    defined = {*re.findall(r"--([\w-]+):", text), *re.findall(r"'--([\w-]+)'", text)}
    assert used - defined == set()
