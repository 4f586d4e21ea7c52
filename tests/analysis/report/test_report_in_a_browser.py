"""The page in a real browser: it loads without errors and requests, and what can be clicked does its work."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardc
from shardc.analysis.explain.explanation import Change, Diagnostic, Explanation, ProgramTotals, Remedy, Suggestion
from shardc.analysis.report.gather import report_data
from shardc.analysis.report.page import page
from shardc.analysis.simulate.simulated_step import SimulatedEvent, SimulatedWork
from shardc.analysis.simulate.simulation import Simulation
from shardc.stages.stages import Partitioned
from tests.analysis.report.browser import Browser, Tab, luminance, need_chromium
from tests.analysis.report.kinds import kind_colours
from tests.analysis.simulate.fake_simulation import fake_simulation
from tests.partitioner.example_plan import example_plan

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"
EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def partitioned() -> Partitioned:
    return shardc.load(DEMO).propagate().partition()


def with_advice(explanation: Explanation) -> Explanation:
    """An explanation whose first collective has a remedy, and a warning that points to it."""
    totals = ProgramTotals(1e6, 10, 10, 2)
    change = Change("x*", "data,None", "replicated")
    remedy = Remedy("split x by data", (change,), totals, dataclasses.replace(totals, wire_bytes=1e5), True)
    first, *others = explanation.collectives
    warned = Diagnostic(
        "full-gather", "x is gathered", "x", "m.py:3", {"bytes": 2048.0}, Suggestion("do", remedy), first.names
    )
    found = (dataclasses.replace(first, remedies=(remedy,)), *others)
    return dataclasses.replace(explanation, collectives=found, warnings=(warned,))


@pytest.fixture(scope="module")
def tab(browser: Browser, partitioned: Partitioned, tmp_path_factory: pytest.TempPathFactory) -> Tab:
    simulation = partitioned.simulate("h100-dgx")
    explanation = with_advice(partitioned.explanation("h100-dgx"))
    data = report_data(partitioned, simulation=simulation, explanation=explanation, bandwidth=3.35e12)
    data["program"] = EVIL
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(data), encoding="utf-8")
    return browser.open(path)


def show(tab: Tab, section: str, inside: str) -> None:
    tab.eval(f"document.getElementById('{section}').scrollIntoView()")
    tab.wait(f"document.querySelector('#{section} {inside}') !== null")


def column(tab: Tab, section: str, number: int) -> list[str]:
    cells = f"#{section} tbody tr:not(.detail) > td:nth-child({number})"
    found: list[str] = tab.eval(f"[...document.querySelectorAll('{cells}')].map((e) => e.innerText)")
    return found


def test_nothing_goes_wrong_and_nothing_is_asked_of_a_network(tab: Tab) -> None:
    for section in ("structure", "operations", "collectives", "graph", "timeline", "memory", "traffic", "tensors"):
        show(tab, section, "table, canvas, svg")
    assert tab.problems() == []


def test_what_a_program_says_stays_text(tab: Tab) -> None:
    assert tab.eval("document.querySelector('h1').innerText") == EVIL
    assert tab.eval("document.querySelectorAll('img').length") == 0


def test_table_sorts_by_a_click_on_a_title(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    titles = tab.eval("[...document.querySelectorAll('#collectives th')].map((e) => e.innerText.trim().split(' ')[0])")
    at = titles.index("sent") + 1
    tab.click(f"#collectives th:nth-child({at}) button")
    down = column(tab, "collectives", at)
    tab.click(f"#collectives th:nth-child({at}) button")
    assert column(tab, "collectives", at) == down[::-1] or sorted(down) == sorted(column(tab, "collectives", at))
    assert column(tab, "collectives", at) != down
    assert (
        tab.eval(f"document.querySelector('#collectives th:nth-child({at})').getAttribute('aria-sort')") == "ascending"
    )


def test_table_filters(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    everything = column(tab, "collectives", 3)
    wanted = everything[1].split()[-1]
    tab.click("#collectives input[type=search]")
    tab.type(f"{wanted.upper()} ")
    found = column(tab, "collectives", 3)
    assert found == [text for text in everything if wanted in text] and len(found) < len(everything)
    tab.type("nosuchthing")
    assert "nothing matches" in tab.eval("document.querySelector('#collectives tbody').innerText")
    tab.eval("document.querySelector('#collectives input').select()")
    tab.press("Backspace")
    assert column(tab, "collectives", 3) == everything


def test_click_opens_the_explanation(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    assert tab.eval("document.querySelector('#collectives .detail')") is None
    tab.click("#collectives tbody tr.clickable td:nth-child(4)")
    text = tab.eval("document.querySelector('#collectives .detail').innerText")
    assert "because" in text and "What would remove it" in text
    tab.click("#collectives tbody tr.clickable td:nth-child(4)")
    assert tab.eval("document.querySelector('#collectives .detail')") is None


def test_keyboard_opens_the_explanation(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    tab.eval("document.querySelector('#collectives button.opener').focus()")
    tab.press("Enter")
    assert tab.eval("document.querySelectorAll('#collectives .detail').length") == 1
    assert tab.eval("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.press("Enter")


def test_warning_leads_to_its_collective(tab: Tab) -> None:
    assert "x is gathered" in tab.eval("document.querySelector('.warning').innerText")
    tab.click(".warning button.link")
    text = tab.eval("document.querySelector('#collectives .detail').innerText")
    assert "split x by data" in text and "--annotate 'x*=data,None'" in text
    tab.click("#collectives button.opener[aria-expanded=true]")


def test_tree_expands_by_mouse_and_by_keys(tab: Tab) -> None:
    show(tab, "structure", "tbody tr")
    closed = "#structure tr[aria-expanded=false]"
    before = tab.eval("document.querySelectorAll('#structure tbody tr').length")
    tab.click(f"{closed} .mark")
    after = tab.eval("document.querySelectorAll('#structure tbody tr').length")
    assert after > before
    tab.eval(f"document.querySelector('{closed}').focus()")
    tab.press("ArrowRight")
    assert tab.eval("document.querySelectorAll('#structure tbody tr').length") > after
    assert tab.eval("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.press("ArrowLeft")
    assert tab.eval("document.querySelectorAll('#structure tbody tr').length") == after


def test_figures_of_the_tree_add_up(tab: Tab) -> None:
    found = tab.eval("JSON.parse(document.getElementById('data').textContent).tree.length")
    assert found > 20
    text = tab.eval("document.querySelector('#structure tbody tr td.number').innerText")
    assert text.split()[1] in ("us", "ms", "s")


def test_timeline_names_what_is_pointed_at_and_zooms(tab: Tab) -> None:
    show(tab, "timeline", "canvas")
    x, _ = tab.middle("#timeline canvas")
    top = tab.eval("document.querySelector('#timeline canvas').getBoundingClientRect().top")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=top + 16)
    assert "limited by" in tab.eval("document.querySelector('#timeline .info').innerText")
    picture = "document.querySelector('#timeline canvas').toDataURL()"
    whole = tab.eval(picture)
    tab.click("#timeline button[aria-label='zoom in']")
    tab.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert tab.eval(picture) != whole
    tab.eval("document.querySelector('#timeline canvas').focus()")
    tab.press("0")


def test_timeline_finds_work_and_adds_up_a_range(tab: Tab) -> None:
    show(tab, "timeline", "canvas")
    data = tab.eval("JSON.parse(document.getElementById('data').textContent)")
    text, line = data["strings"], data["timeline"]
    moved = [e for e in line["events"] if line["kinds"][e[1]] == "transfer"]
    tab.eval("document.querySelector('#timeline input[type=search]').focus()")
    tab.type("all-reduce")
    assert tab.eval("document.querySelector('#timeline .tools + .tools .quiet').innerText").startswith(
        f"{len(moved)} event"
    )
    assert all("all-reduce" in text[line["work"][e[2]][2]] for e in moved)
    tab.eval("document.querySelector('#timeline input[type=search]').select()")
    tab.press("Backspace")
    button = "[...document.querySelectorAll('#timeline button')].find((e) => e.innerText === 'totals of what is shown')"
    tab.eval(f"{button}.click()")
    rows = """[...document.querySelectorAll('#timeline .totals tbody tr')]
        .map((e) => e.innerText.split('\\t').map((t) => t.trim()))"""
    found = {row[2]: row for row in tab.eval(rows)}
    assert found["all-reduce"][5] == str(len(moved))
    waits = sum(e[4] - e[3] for e in line["events"] if line["kinds"][e[1]] == "wait")
    assert float(found["compute waits"][4].rstrip("%")) == pytest.approx(100 * waits / line["end"], rel=0.01)
    left, top = tab.eval("(({x, y}) => [x, y])(document.querySelector('#timeline canvas').getBoundingClientRect())")
    whole = tab.eval("document.querySelector('#timeline .totals h3').innerText")
    for kind, x in (("mousePressed", 300), ("mouseMoved", 350), ("mouseMoved", 500), ("mouseReleased", 500)):
        tab.call(
            "Input.dispatchMouseEvent", type=kind, x=left + x, y=top + 15, button="left", clickCount=1, modifiers=8
        )
    assert tab.eval("document.querySelector('#timeline .totals h3').innerText") != whole


def test_tensors_show_their_layout(tab: Tab) -> None:
    show(tab, "tensors", "tbody tr")
    tab.click("#tensors tbody tr.clickable td:nth-child(4)")
    tab.wait("document.querySelectorAll('#tensors .detail .part').length >= 1")
    assert "devices that hold the part" in tab.eval("document.querySelector('#tensors .detail').innerText")
    tab.click("#tensors tbody tr.clickable td:nth-child(4)")


@pytest.mark.parametrize("width", [360, 640, 1280])
def test_page_is_never_wider_than_the_window(tab: Tab, width: int) -> None:
    tab.resize(width=width, height=800)
    tab.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert tab.eval("document.documentElement.scrollWidth") <= width
    beyond = """[...document.querySelectorAll('.tree .label > *')].filter((e) =>
        e.getBoundingClientRect().right > e.closest('td').getBoundingClientRect().right + 1).length"""
    assert tab.eval(beyond) == 0
    tab.resize()


def test_everything_can_be_read_on_a_phone(tab: Tab) -> None:
    """At 400 pixels no text of tables, tree and lists is cut, and none lies beside the window."""
    tab.resize(width=400, height=800)
    for section in ("structure", "operations", "collectives", "memory", "tensors"):
        show(tab, section, "tbody tr")
    tab.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    cut = """[...document.querySelectorAll('td, th, li, p, dd, .badge')].filter((e) => e.offsetParent && (
        e.getBoundingClientRect().right > 400 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0))
        .map((e) => `${e.tagName}.${e.className}: ${e.innerText}`)"""
    assert tab.eval(cut) == []
    titles = "getComputedStyle(document.querySelector('#collectives td[data-title=reason]'), '::before').content"
    assert "data-title" in tab.eval(titles) or "reason" in tab.eval(titles)
    tab.resize()


def test_reasons_are_shown_whole(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    longest = """[...document.querySelectorAll('#collectives td.words')]
        .map((e) => [e.innerText.trim(), e.scrollHeight, e.clientHeight])
        .sort((a, b) => b[0].length - a[0].length)[0]"""
    text, high, shown = tab.eval(longest)
    assert high == shown
    data = tab.eval("JSON.parse(document.getElementById('data').textContent)")
    causes = max((data["strings"][row["reason"]] for row in data["collectives"]), key=len).split("; ")
    assert len(causes) > 3 and text.endswith(f"{len(causes) - 2} more causes")
    tab.eval("document.querySelectorAll('#collectives td.words details').forEach((e) => (e.open = true))")
    said = tab.eval("document.querySelector('#collectives tbody').innerText")
    assert all(cause in said for cause in causes)
    tab.eval("document.querySelectorAll('#collectives td.words details').forEach((e) => (e.open = false))")


def test_kinds_of_operations_add_up_to_the_step(tab: Tab) -> None:
    show(tab, "operations", "tbody tr")
    data = tab.eval("JSON.parse(document.getElementById('data').textContent)")
    kinds, shares = column(tab, "operations", 2), column(tab, "operations", 3)
    assert {"matrix products", "elementwise", "reductions", "all-reduce"} <= set(kinds)
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=0.3)
    leaves = [row for row in data["tree"] if row[1] == "leaf"]
    products = [row for row in leaves if data["strings"][row[8]] == "matrix products"]
    tab.eval("document.querySelector('#operations tr[data-key=\"matrix products\"] button').click()")
    assert f"{len(products)} rows" in tab.eval("document.querySelector('#operations .detail').innerText")
    tab.eval("document.querySelector('#operations tr[data-key=\"matrix products\"] button').click()")


def test_the_roofline_names_the_kernel_that_is_pointed_at(tab: Tab) -> None:
    show(tab, "operations", "canvas")
    box = "document.querySelector('#operations canvas').getBoundingClientRect()"
    tab.eval("document.querySelector('#operations canvas').scrollIntoView({block: 'center'})")
    left, top, width, height = tab.eval(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")
    said = "document.querySelector('#operations .info').innerText"
    for x in range(int(left) + 90, int(left + width), 8):
        for y in range(int(top), int(top + height), 12):
            tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            told = tab.eval(said)
            if "of the roof" in told:
                assert 0 < float(told.split("% of the roof")[0].split()[-1]) <= 100
                return
    raise AssertionError("no dot was found")


def items(tab: Tab) -> list[str]:
    found: list[str] = tab.eval(
        "[...document.querySelectorAll('#graph svg > .item')].map((e) => e.querySelector('.name').textContent)"
    )
    return found


def test_the_graph_opens_scopes_and_explains_collectives(tab: Tab) -> None:
    show(tab, "graph", ".item")
    assert "jit(step)" in tab.eval("document.querySelector('#graph .trail').innerText")
    above = items(tab)
    assert "jvp()" in above and "all-reduce" not in above
    tab.eval("document.querySelector('#graph .item.scope[aria-label^=\"jvp()\"]').focus()")
    tab.press("Enter")
    assert "all-reduce" in items(tab) and items(tab) != above
    assert "unreduced={axis_1}" in tab.eval("document.querySelector('#graph svg').textContent")
    tab.eval("document.querySelector('#graph .item.kind-all-reduce').focus()")
    tab.press(" ")
    said = tab.eval("document.querySelector('#graph .info').innerText")
    assert "why it is there" in said and "reads" in said and "is read by" in said
    tab.click("#graph .info button.link")
    assert tab.eval("document.querySelectorAll('#collectives .detail').length") == 1
    tab.click("#collectives button.opener[aria-expanded=true]")
    tab.eval("document.querySelectorAll('#graph .trail button')[1].click()")
    assert items(tab) == above


def test_the_graph_finds_an_operation(tab: Tab) -> None:
    show(tab, "graph", ".item")
    tab.eval("document.querySelector('#graph input').focus()")
    tab.type("scatter-add")
    tab.press("Enter")
    assert tab.eval("document.activeElement.getAttribute('aria-label')").startswith("scatter-add")
    assert "transpose(jvp())" in tab.eval("document.querySelector('#graph .trail').innerText")


def test_a_kind_of_collective_and_a_group_have_a_colour(tab: Tab) -> None:
    show(tab, "collectives", "tbody tr")
    look = """Object.fromEntries([...document.querySelectorAll('#collectives tbody .badge')].map((e) =>
        [e.innerText, getComputedStyle(e)[e.matches('.axes') ? 'borderColor' : 'backgroundColor']]))"""
    colours = tab.eval(look)
    assert {"all-reduce", "axis_0", "axis_1"} <= set(colours) and len(set(colours.values())) == len(colours)
    legend = tab.eval("document.querySelector('#collectives .legend').innerText")
    assert "2 groups of 2 devices: {0, 1}, {2, 3}" in legend and "{0, 2}, {1, 3}" in legend


def test_contrast_of_text_is_enough(tab: Tab) -> None:
    """4.5 to 1 as in WCAG 2.1, 1.4.3, for every pair of colours that text has."""
    pairs = [(text, back) for text in ("ink", "quiet", "accent", "alarm") for back in ("paper", "panel")]
    pairs += [(text, back) for text in ("ink", "quiet") for back in ("warn", "fold")]
    pairs += [("on-bar", bar) for bar in kind_colours()]
    for dark in (False, True):
        tab.dark(dark)
        names = sorted({name for pair in pairs for name in pair})
        style = "getComputedStyle(document.documentElement)"
        read = f"{names!r}.map((name) => {style}.getPropertyValue('--' + name).trim())"
        light = dict(zip(names, map(luminance, tab.eval(read)), strict=True))
        for a, b in pairs:
            high, low = max(light[a], light[b]), min(light[a], light[b])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (a, b, dark)
    tab.dark(False)


def test_page_without_a_machine(browser: Browser, partitioned: Partitioned, tmp_path: Path) -> None:
    partitioned.write_report(tmp_path / "page.html")
    tab = browser.open(tmp_path / "page.html")
    show(tab, "memory", "canvas")
    show(tab, "timeline", ".missing")
    assert "no times are known" in tab.eval("document.getElementById('timeline').innerText")
    assert "no machine was named" in tab.eval("document.querySelector('.warnings').innerText")
    assert tab.problems() == []


def test_the_plan_is_shown_value_by_value(browser: Browser, partitioned: Partitioned, tmp_path: Path) -> None:
    plan = example_plan()
    first, carry, *others = plan.decisions
    plan = dataclasses.replace(plan, decisions=(first, dataclasses.replace(carry, names=(EVIL,)), *others))
    dataclasses.replace(partitioned, plan=plan).write_report(tmp_path / "page.html")
    tab = browser.open(tmp_path / "page.html")
    show(tab, "plan", "tbody tr")
    said = tab.eval("document.getElementById('plan').innerText")
    assert "1.45 s, as propagated 15.4 s" in said and "no plan is below 1.4 s (gap 0.71%, integer program)" in said
    assert "Memory limits the plan at dot.12 train.py:34: 29.2 GiB of 29.8 GiB; one more GiB would save 268 ms." in said
    assert column(tab, "plan", 2) == [EVIL, "dot.12 (+1 like it)", "params['w1'] (+1 like it)", "tanh.1", "grads"]
    assert column(tab, "plan", 5)[:3] == ["None,data+model", "None,data+model", "the same"]
    assert column(tab, "plan", 8)[:2] == ["+13.9 s", "+6.5 s"]
    boxes = "[...document.querySelectorAll('#plan .glyph.planned i')].map((e) => [e.clientWidth, e.clientHeight])"
    assert tab.eval(boxes)[0] == [74, 9]  # a quarter of the rows of 74 x 36 pixels
    tab.click("#plan tbody tr.clickable td:nth-child(3)")
    detail = tab.eval("document.querySelector('#plan .detail').innerText")
    assert "13.9 s more" in detail and "data,model: 210 ms more" in detail and "as propagated" in detail
    assert tab.eval("document.querySelectorAll('#plan .detail .grid').length") == 2
    assert tab.problems() == [] and tab.eval("document.querySelectorAll('img').length") == 0
    for dark in (False, True):
        tab.dark(dark)
        light = "getComputedStyle(document.querySelector('#plan .glyph.planned')).backgroundColor"
        assert tab.eval(light) != tab.eval(light.replace(".planned')", ".planned i')"))
    tab.close()


def test_without_a_plan_there_is_no_section(tab: Tab) -> None:
    assert tab.eval("document.getElementById('plan')") is None


def big(simulation: Simulation) -> Simulation:
    """20,000 pieces of work in a deep program, 500 of them collectives, and as many events."""
    dice = random.Random(0)
    work = []
    for n in range(20_000):
        moves = n % 40 == 0
        scope = f"jit(step)/layer{n // 200}/block{n // 20 % 10}/op{n}"
        more: dict[str, Any] = (
            {"axes": ("data",), "wire_bytes": dice.randrange(1 << 30), "group_size": 8}
            if moves
            else {"limit": "memory"}
        )
        kind, opcode = ("collective", "all-reduce") if moves else ("kernel", "fusion")
        work.append(
            SimulatedWork(
                kind=kind,
                name=f"{opcode}.{n}",
                opcode=opcode,
                op_name=scope,
                source=f"model.py:{n % 977}",
                count=1,
                seconds=1e-6,
                flops=n,
                **more,
            )
        )
    events = [
        SimulatedEvent(
            "nvlink" if n % 40 == 0 else "compute", "transfer" if n % 40 == 0 else "kernel", n, n * 1e-6, 1e-6
        )
        for n in range(20_000)
    ]
    return dataclasses.replace(
        simulation, work=tuple(work), events=tuple(events), skipped=(), loops=(), groups=(None,) * 20_000,
        step_seconds=0.02, memory_curve=tuple((n * 1e-6, dice.randrange(1 << 30)) for n in range(20_000)),
    )  # fmt: skip


@pytest.mark.full
def test_large_programs_stay_usable(browser: Browser, partitioned: Partitioned, tmp_path: Path) -> None:
    text = page(report_data(partitioned, simulation=big(fake_simulation())))
    assert len(text) < 8_000_000
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    tab = browser.open(tmp_path / "page.html")
    for section in ("structure", "collectives", "timeline", "memory"):
        show(tab, section, "tr, canvas")
    assert tab.eval("document.querySelectorAll('*').length") < 5000
    assert tab.problems() == []
    show(tab, "structure", "tbody tr")
    tab.eval("document.querySelector('#structure tr[aria-expanded=false] .mark').scrollIntoView({block: 'center'})")
    tab.click("#structure tr[aria-expanded=false] .mark")
    assert tab.eval("document.querySelectorAll('#structure tr').length") > 10
