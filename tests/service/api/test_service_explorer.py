"""The explorer in a real browser, on a real service: what a person does there, by mouse and by keyboard."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardc.service.explorer.files import policy
from tests.analysis.report.browser import Browser, Tab, luminance, need_chromium
from tests.analysis.report.legibility import cut_text, equal_labels, equal_rows, low_contrast, overlapping_text
from tests.service.service_harness import TOKEN, Service, eventually

EVIL = "<img src=x onerror=alert(1)>"
DOT = """HloModule dot, num_partitions=4

ENTRY main {
  x = f32[8,16]{1,0} parameter(0), metadata={op_name="EVIL"}
  w = f32[16,4]{1,0} parameter(1), metadata={op_name="w"}
  ROOT y = f32[8,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""".replace("EVIL", EVIL)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Tab]:
    """The page, let in."""
    tab = opened(browser, service)
    use_token(tab, TOKEN)
    tab.wait("document.querySelectorAll('#machine option').length > 2")
    yield tab
    tab.close()


def opened(browser: Browser, service: Service) -> Tab:
    tab = browser.open(service.url + "/")
    tab.wait("document.activeElement.id === 'token-field'")
    return tab


def use_token(tab: Tab, token: str) -> None:
    tab.type(token)
    tab.press("Enter")


def press_button(tab: Tab, text: str, within: str = "body") -> None:
    """A click on the first button in view that says so."""
    tab.eval("document.querySelectorAll('.pressed').forEach((e) => e.classList.remove('pressed'))")
    found = f"[...document.querySelectorAll('{within} button')].find((e) => e.innerText === {json.dumps(text)})"
    tab.eval(f"{found}.classList.add('pressed')")
    tab.click(".pressed")


def take_example(tab: Tab) -> None:
    press_button(tab, "Perceptron, a training step")
    tab.wait("document.querySelector('.variant') !== null")


def take_text(tab: Tab, text: str) -> None:
    press_button(tab, "Paste text")
    tab.type(text)
    press_button(tab, "Take this text")


def drop(tab: Tab, program: str, name: str) -> None:
    tab.eval(f"""(() => {{
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([{json.dumps(program)}], {json.dumps(name)}));
        document.body.dispatchEvent(new DragEvent('drop', {{ dataTransfer, bubbles: true, cancelable: true }}));
    }})()""")


def make(tab: Tab, reports: int) -> None:
    """Until there are so many reports, or what went wrong is told."""
    tab.wait(f"document.querySelectorAll('iframe').length === {reports} || document.querySelector('.problem') !== null")


def compare(tab: Tab, spec: str) -> None:
    """Another variant of the example, with w1 split otherwise."""
    press_button(tab, "Change an annotation", "#variants")
    tab.eval("document.querySelectorAll('.variant')[1].querySelectorAll('.spec')[2].select()")
    tab.type(spec)
    tab.press("Enter")
    make(tab, 2)


def text(tab: Tab, selector: str) -> str:
    return str(tab.eval(f"document.querySelector({json.dumps(selector)}).innerText"))


def strange(tab: Tab, service: Service) -> list[str]:
    """Errors, and requests to anybody but the service; not that it wanted a token at first."""
    usual = (
        f"request: {service.url}",
        "request: blob:",
        "log: Failed to load resource: the server responded with a status of 401",
    )
    return [told for told in tab.problems() if not told.startswith(usual)]


def test_the_mesh_is_drawn_as_it_is_typed(tab: Tab) -> None:
    take_example(tab)
    tab.click(".variant fieldset details summary")
    cells = "[...document.querySelectorAll('.variant .grid td')].map((e) => e.innerText)"
    tab.wait(f"{cells}.length === 8")
    assert tab.eval(cells) == [str(n) for n in range(8)]
    tab.eval("document.querySelector('.variant .size').select()")
    tab.type("8")
    tab.wait(f"{cells}.length === 16")
    assert "data=7" in text(tab, ".variant .grid")


@pytest.mark.parametrize("example", ["Perceptron, a training step", "Transformer, a training step from JAX"])
def test_each_axis_of_an_example_is_doubled(tab: Tab, example: str) -> None:
    press_button(tab, example)
    tab.wait("document.querySelectorAll('.variant .size').length === 2")
    choose_machine(tab, "")
    for axis in (0, 1):
        size = f"document.querySelectorAll('.variant .size')[{axis}]"
        large = 2 * int(tab.eval(f"{size}.value"))
        tab.eval(f"{size}.select()")
        tab.type(str(large))
        press_button(tab, "Make the report" if axis == 0 else "Make the report again")
        tab.wait(
            "document.querySelector('.problem') !== null || document.querySelector('.variant.stale') === null && "
            "document.querySelectorAll('iframe').length === 1"
        )
        assert tab.eval("document.querySelector('.problem') === null")


def test_many_annotations_are_filtered(tab: Tab) -> None:
    press_button(tab, "Transformer, a training step from JAX")
    tab.wait("document.querySelector('.variant .own') !== null")
    tab.eval("document.querySelector('.variant .own').closest('details').querySelector('summary').click()")
    rows = "[...document.querySelectorAll('.variant .own li')].map((e) => e.innerText)"
    tab.wait(f"{rows}.length > 100")
    everything = tab.eval(rows)
    tab.eval("document.querySelector('.variant input[type=search]').focus()")
    tab.type("params W1 model")
    found = tab.eval(rows)
    assert found == [row for row in everything if all(w in row.lower() for w in ("params", "w1", "model"))]
    assert 0 < len(found) < len(everything)


def test_a_token_is_asked_for_and_kept_in_the_tab_alone(browser: Browser, service: Service) -> None:
    tab = opened(browser, service)
    use_token(tab, "wrong")
    tab.wait("document.querySelector('#token .problem') !== null")
    tab.eval("document.getElementById('token-field').focus()")
    use_token(tab, TOKEN)
    tab.wait("document.querySelectorAll('#machine option').length > 2")
    assert tab.eval("document.getElementById('token').hidden")
    assert tab.eval("localStorage.length") == 0 and tab.eval("document.cookie") == ""
    assert TOKEN not in tab.eval("location.href")
    tab.close()


def test_the_page_may_run_its_own_script_and_no_other(tab: Tab, service: Service) -> None:
    with service.caller("") as caller:
        page = caller.http.get("/")
    assert page.headers["Content-Security-Policy"] == policy() and page.headers["X-Content-Type-Options"] == "nosniff"
    refused = """(() => {
        const tries = [
            () => { document.body.innerHTML += '<b>x</b>'; },
            () => { document.createElement('script').textContent = '1'; },
        ];
        return tries.map((attempt) => { try { attempt(); return 'done'; } catch (error) { return error.name; } });
    })()"""
    assert tab.eval(refused) == ["TypeError", "TypeError"]


def test_an_example_becomes_a_report(tab: Tab, service: Service) -> None:
    take_example(tab)
    assert "4 parameters, 3 results" in text(tab, "#program [role=status]")
    press_button(tab, "Make the report")
    make(tab, 1)
    tab.eval("document.querySelector('iframe').scrollIntoView()")
    report = tab.frame("blob:")
    report.wait("document.querySelector('h1') !== null")
    assert report.eval("document.querySelector('h1').innerText") == "perceptron_step"
    assert report.eval("origin") == "null", "a report has no part in the page's origin"
    report.eval("document.querySelector('nav a[href=\"#tensors\"]').click()")
    report.wait("document.querySelector('#tensors tbody tr') !== null")
    assert "h100-dgx" in report.eval("document.querySelector('header').innerText")
    names = tab.eval("[...document.querySelectorAll('figcaption button')].map((e) => e.innerText)")
    assert {"partitioned.hlo", "report.html", "report.json", "simulation.json", "trace.json"} <= set(names)
    assert strange(tab, service) == []


def test_files_of_a_report_are_saved(tab: Tab, browser: Browser, service: Service, tmp_path: Path) -> None:
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    take_example(tab)
    press_button(tab, "Make the report")
    make(tab, 1)
    press_button(tab, "partitioned.hlo", "#reports")
    saved = tmp_path / "partitioned.hlo"
    eventually(saved.exists, "the file to be saved")
    with service.caller() as caller:
        jobs = caller.http.get("/v1/jobs", params={"limit": 20}).json()["jobs"]
        newest = next(job for job in jobs if job["kind"] == "report" and job["state"] == "done")
        assert saved.read_bytes() == caller.file(newest["key"], "partitioned.hlo")


def test_two_variants_side_by_side(tab: Tab, service: Service) -> None:
    take_example(tab)
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    assert text(tab, ".changes li") == "w1=None,model → w1=model,None"
    rows = tab.eval(
        "[...document.querySelectorAll('.figures tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))"
    )
    figures = {title: cells for title, *cells in rows}
    assert {"time of a step", "memory", "sent over nvlink", "collectives", "devices"} <= set(figures)
    assert figures["time of a step"][2].startswith("+") and figures["sent over nvlink"][2].startswith("+")
    assert figures["devices"] == ["8", "8", "same"]
    collectives = text(tab, "#comparison [aria-label='collectives of both variants'] tbody")
    assert "all-to-all" in collectives and "new" in collectives
    assert "w1" in text(tab, "#comparison [aria-label='tensors with other layouts'] tbody")
    press_button(tab, "Only B", "#reports")
    shown = "[...document.querySelectorAll('#reports figure')].map((e) => !e.hidden)"
    assert tab.eval(shown) == [False, True]
    press_button(tab, "Keep only B", "#variants")
    tab.wait("document.querySelectorAll('iframe').length === 1")
    assert tab.eval("document.querySelector('iframe').title") == "report of variant A", "it is called so now"
    assert tab.eval("document.querySelector('.variant .annotation:nth-child(3) .spec').value") == "model,None"
    assert tab.eval("document.getElementById('comparison').hidden")
    assert strange(tab, service) == []


def test_a_remedy_is_tried(tab: Tab, service: Service) -> None:
    take_example(tab)
    choose_machine(tab, "")
    tab.eval("document.querySelectorAll('.spec')[2].select()")
    tab.type("model,None")
    press_button(tab, "Look for remedies")
    tab.wait("document.querySelector('.remedies') !== null || document.querySelector('.problem') !== null")
    told = text(tab, ".remedies")
    assert "all-to-all" in told and "less sent" in told
    tab.click(".remedies button[aria-label='Try: split dimension 1 of w1 over model instead of dimension 0']")
    make(tab, 2)
    assert text(tab, ".changes") == "w1=model,None → w1=None,model"
    assert text(tab, ".figures tbody tr:nth-child(2) td:last-child").startswith("−"), "less is sent, as was told"
    tab.eval("document.querySelectorAll('.spec')[2].select()")
    tab.type("None,None")
    assert tab.eval("document.querySelector('.remedies') === null"), "they were for other annotations"
    assert strange(tab, service) == []


#: Its result is large, so that it matters how it lies: a sum of it would take no annotation to be fast.
LARGE = """HloModule large

ENTRY main {
  x = f32[16384,8192]{1,0} parameter(0), metadata={op_name="x"}
  w1 = f32[8192,32768]{1,0} parameter(1), metadata={op_name="w1"}
  w2 = f32[32768,8192]{1,0} parameter(2), metadata={op_name="w2"}
  h = f32[16384,32768]{1,0} dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16384,32768]{1,0} tanh(h), metadata={op_name="jit(f)/tanh" source_file="layer.py" source_line=7}
  ROOT o = f32[16384,8192]{1,0} dot(t, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_annotations_are_found_and_tried(tab: Tab, service: Service) -> None:
    take_text(tab, LARGE)
    tab.wait("document.querySelector('.variant') !== null")
    choose_machine(tab, "")
    press_button(tab, "Find annotations")
    assert text(tab, ".variant .problem") == (
        "The search minimises the step time on a machine: choose a machine above."
    )
    choose_machine(tab, "h100-dgx")
    press_button(tab, "Find annotations")
    tab.wait("document.querySelector('.found') !== null || document.querySelector('.problem') !== null")
    assert text(tab, ".found p").startswith("Over data=2, model=2 a step takes ")
    found = tab.eval("[...document.querySelectorAll('.found tbody tr')].map((r) => r.cells[1].innerText)")
    assert found and all("data" in spec or "model" in spec for spec in found)
    assert "NamedSharding" in tab.eval("document.querySelector('.found pre').textContent")
    assert tab.eval("document.querySelectorAll('.found pre')[1].textContent").startswith("[mesh]\ndata = 2")
    press_button(tab, "Find over other meshes of 4 devices")
    tab.wait("document.querySelectorAll('.found details').length === 3 || document.querySelector('.problem') !== null")
    assert text(tab, ".found summary") == "3 meshes compared"
    press_button(tab, "Try these annotations")
    make(tab, 2)
    written = "[...document.querySelectorAll('.variant')[1].querySelectorAll('.spec')].map((e) => e.value)"
    assert len(tab.eval(written)) >= 1
    assert text(tab, ".figures tbody tr:first-child td:last-child").startswith("−"), "the step is shorter, as was told"
    assert strange(tab, service) == []


def test_two_variants_without_a_machine(tab: Tab) -> None:
    take_example(tab)
    choose_machine(tab, "")
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    rows = tab.eval("[...document.querySelectorAll('.figures tbody tr')].map((r) => r.cells[0].innerText)")
    assert rows == ["memory", "sent", "collectives", "operations", "devices"]
    assert "sent A" in text(tab, "#comparison [aria-label='collectives of both variants'] thead")
    choose_machine(tab, "a100-dgx")
    assert tab.eval("document.querySelectorAll('.stale').length") == 2
    press_button(tab, "Make the report again")
    tab.wait("document.querySelectorAll('.stale').length === 1")
    assert "no machine" in text(tab, ".changes"), "what one of both was made for is told"
    press_button(tab, "Compare")
    tab.wait("document.querySelectorAll('.stale').length === 0")
    assert "machine" not in text(tab, ".changes")


def choose_machine(tab: Tab, name: str) -> None:
    tab.eval(f"""(() => {{
        const choice = document.getElementById('machine');
        choice.value = '{name}';
        choice.dispatchEvent(new Event('change'));
    }})()""")


def test_a_token_that_is_taken_back_is_asked_for_again(tab: Tab) -> None:
    take_example(tab)
    tab.eval("sessionStorage.setItem('shardc-token', 'wrong')")
    press_button(tab, "Make the report")
    tab.wait("document.activeElement.id === 'token-field'")
    use_token(tab, TOKEN)
    tab.wait("document.getElementById('token').hidden")
    press_button(tab, "Make the report")
    tab.wait("document.querySelectorAll('iframe').length === 1")


def test_a_link_shows_the_same(tab: Tab, browser: Browser) -> None:
    take_example(tab)
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    changes, figures = text(tab, ".changes"), text(tab, ".figures")
    tab.eval("window.before = true")
    tab.call("Page.reload")
    tab.wait("window.before === undefined && document.querySelectorAll('iframe').length === 2")
    assert text(tab, ".changes") == changes and text(tab, ".figures") == figures


def tab_to(tab: Tab, label: str) -> None:
    """By the Tab key alone, to the next element that is called so."""
    called = "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText)"
    for _ in range(60):
        tab.press("Tab")
        if tab.eval(called) == label:
            return
    raise AssertionError(f"nothing that Tab reaches is called {label!r}")


def test_everything_is_done_by_the_keyboard_alone(tab: Tab) -> None:
    tab_to(tab, "Paste text")
    tab.press("Enter")
    tab.type(DOT.replace(", num_partitions=4", ""))
    tab_to(tab, "Take this text")
    tab.press("Enter")
    tab.wait("document.querySelector('.variant') !== null")
    mesh = "[...document.querySelectorAll('.variant .row:has(.size)')].map((e) => e.querySelector('input').value)"
    assert tab.eval(mesh) == ["data", "model"]
    tab_to(tab, "Add an axis")
    tab.press("Enter")
    tab.type("pipe")
    assert tab.eval(mesh) == ["data", "model", "pipe"]
    tab_to(tab, "remove axis 3")
    tab.press("Enter")
    assert tab.eval(mesh) == ["data", "model"]
    tab_to(tab, "Add an annotation")
    tab.press("Enter")
    tab.type("w")
    assert tab.eval("document.activeElement.getAttribute('aria-expanded')") == "false", "it is complete"
    tab.press("Backspace")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    active = tab.eval("document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText")
    assert active.startswith("w ") and "f32[16,4] parameter" in active
    tab.press("Enter")
    assert tab.eval("document.activeElement.value") == "w"
    assert tab.eval("document.querySelector('.spec').value") == "None,None"
    tab_to(tab, "spec of annotation 1")
    tab.type("model")
    assert tab.eval("document.querySelector('.dimensions select').value") == "model"
    tab.press("Enter")
    make(tab, 1)
    tab_to(tab, "Change an annotation")
    tab.press("Enter")
    assert tab.eval("document.activeElement.closest('.variant').getAttribute('aria-label')") == "variant B"
    tab_to(tab, "spec of annotation 1")
    tab.type("None,model")
    tab.press("Enter")
    make(tab, 2)
    assert text(tab, ".changes li") == "w=model → w=None,model"


def test_a_choice_of_a_dimension_writes_the_spec(tab: Tab) -> None:
    take_example(tab)
    tab.eval("""(() => {
        const choice = document.querySelectorAll('.annotation:nth-child(1) select')[1];
        choice.value = 'model+data';
        choice.dispatchEvent(new Event('change'));
    })()""")
    assert tab.eval("document.querySelector('.spec').value") == "data,model+data"
    press_button(tab, "Make the report")
    make(tab, 1)
    told = text(tab, ".variant .problem")
    assert told.startswith("Annotation: ") and "data" in told and "x" in told
    assert tab.eval("[...document.querySelectorAll('[aria-invalid]')].map((e) => e.value)") == ["x", "data,model+data"]


def test_a_program_is_dropped(tab: Tab) -> None:
    drop(tab, DOT, "some\nfile.hlo")
    tab.wait("document.querySelector('.variant') !== null")
    assert text(tab, "#program [role=status]").startswith("dot from some file.hlo: 2 parameters, 1 result")


def test_a_file_may_have_any_name(tab: Tab) -> None:
    name = "\u2028\u0007" + "\N{BRAIN}" * 300 + ".hlo"
    drop(tab, DOT, name)
    tab.wait("document.querySelector('.variant, .problem') !== null")
    assert text(tab, "#program [role=status]").startswith("dot from " + "\N{BRAIN}" * 198 + ": 2 parameters")


def test_errors_say_what_where_and_what_to_do(tab: Tab) -> None:
    take_text(tab, DOT.replace("dot(x, w)", "dot(x, nothing)"))
    tab.wait("document.querySelector('.problem') !== null")
    told = text(tab, ".problem")
    assert told.startswith("Not readable: ") and "nothing" in told and "where pasted:6" in told
    take_example(tab)
    summary = text(tab, "#program [role=status]")
    tab.eval("document.querySelector('textarea').value = ''")
    press_button(tab, "Paste text")
    press_button(tab, "Take this text")
    assert text(tab, "#program [role=status]") == summary, "the program that was there stays"
    assert "it is empty" in text(tab, ".problem")


def test_what_is_missing_is_told_before_anything_is_asked(tab: Tab) -> None:
    take_example(tab)
    tab.eval("document.querySelector('.size').select()")
    tab.type("0")
    tab.eval("document.querySelector('.spec').select()")
    tab.press("Backspace")
    press_button(tab, "Make the report")
    told = text(tab, ".variant .problem")
    assert "the size of axis data" in told and "x has no spec" in told
    assert tab.eval("document.querySelector('.problem').getAttribute('role')") == "alert"


def test_what_a_program_says_stays_text(tab: Tab) -> None:
    take_text(tab, DOT)
    tab.wait("document.querySelector('.variant') !== null")
    press_button(tab, "Add an annotation")
    tab.press("ArrowDown")
    assert EVIL in text(tab, "[role=listbox]")
    assert tab.eval("document.querySelectorAll('img').length") == 0


def test_a_job_is_cancelled(tab: Tab, service: Service) -> None:
    drop(tab, many(800), "many.hlo")
    tab.wait("document.querySelector('.variant') !== null")
    press_button(tab, "Make the report")
    tab.wait("[...document.querySelectorAll('.variant button')].some((e) => e.innerText === 'Cancel' && !e.hidden)")
    press_button(tab, "Cancel", ".variant")
    tab.wait("document.querySelector('.variant [role=status]').innerText === 'cancelled'")
    assert tab.eval("document.querySelectorAll('iframe').length") == 0
    with service.caller() as caller:
        newest = caller.http.get("/v1/jobs", params={"limit": 1}).json()["jobs"][0]
        assert caller.over(newest)["state"] in ("cancelled", "done")


def many(layers: int) -> str:
    """Products in a row, enough that they take a moment."""
    lines = [
        f"  h{n + 1} = f32[8,8]{{1,0}} dot(h{n}, h{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for n in range(layers)
    ]
    lines[-1] = lines[-1].replace("  h", "  ROOT h", 1)
    return "\n".join(
        ["HloModule many, num_partitions=2", "", "ENTRY main {", "  h0 = f32[8,8]{1,0} parameter(0)", *lines, "}"]
    )


@pytest.mark.full
def test_a_service_that_is_killed_goes_on_where_it_was(browser: Browser, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with Service(tmp_path / "service", options=("--port", str(port))) as service:
        tab = opened(browser, service)
        use_token(tab, TOKEN)
        drop(tab, many(400), "many.hlo")
        tab.wait("document.querySelector('.variant') !== null")
        press_button(tab, "Make the report")
        tab.wait("document.querySelector('.variant [role=status]').innerText.startsWith('running')")
        service.kill()
        tab.wait("document.querySelector('.variant [role=status]').innerText.includes('the service does not answer')")
        service.start()
        make(tab, 1)
        assert tab.eval("document.querySelector('.problem') === null")
        tab.close()


def test_a_program_that_the_service_forgot_is_sent_again(tab: Tab, service: Service) -> None:
    take_example(tab)
    kept = [path for path in service.store_folder.glob("programs/**/*") if path.is_file()]
    for path in kept:
        path.unlink()
    tab.eval("document.querySelector('.size').select()")
    tab.type("8")
    press_button(tab, "Make the report")
    make(tab, 1)
    assert tab.eval("document.querySelector('.problem') === null")
    assert any(path.exists() for path in kept)


@pytest.mark.parametrize("width", [400, 700, 1280])
def test_page_is_never_wider_than_the_window(tab: Tab, width: int) -> None:
    tab.resize(width=width, height=800)
    take_example(tab)
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    assert tab.eval("document.documentElement.scrollWidth") <= width
    beyond = f"""[...document.querySelectorAll('.variant *, figcaption *')].filter((e) =>
        e.getBoundingClientRect().right > {width}).length"""
    assert tab.eval(beyond) == 0


@pytest.mark.parametrize("width", [1280, 400])
def test_two_variants_can_be_read(tab: Tab, width: int) -> None:
    tab.resize(width=width, height=900)
    take_example(tab)
    tab.click(".variant fieldset details summary")
    choose_machine(tab, "h100-dgx")
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    for dark in (False, True):
        tab.dark(dark)
        assert low_contrast(tab) == []
    tab.dark(False)
    assert (overlapping_text(tab), cut_text(tab), equal_labels(tab), equal_rows(tab)) == ([], [], [], [])


def test_what_is_pressed_is_large_enough_and_has_a_name(tab: Tab) -> None:
    """24 pixels as in WCAG 2.2, 2.5.8, but for what stands in a table's head or in text; names as 4.1.2 has them."""
    take_example(tab)
    press_button(tab, "Make the report")
    make(tab, 1)
    compare(tab, "model,None")
    small = """[...document.querySelectorAll('button, select, input')]
        .filter((e) => e.offsetParent && !e.closest('th, .hidden'))
        .map((e) => [e.getBoundingClientRect().height, e.innerText]).filter(([height]) => height < 24)"""
    assert tab.eval(small) == []
    roles = {"button", "textbox", "combobox", "link", "spinbutton", "searchbox", "Iframe"}
    for node in tab.call("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored") and node["role"]["value"] in roles:
            assert node["name"]["value"].strip(), node


def test_contrast_of_text_is_enough(tab: Tab) -> None:
    """4.5 to 1 as in WCAG 2.1, 1.4.3, for the colours that the report has not."""
    for dark in (False, True):
        tab.dark(dark)
        for front, back in (("good", "paper"), ("ink", "fault"), ("quiet", "fault"), ("paper", "accent")):
            assert contrast(tab, front, back) >= 4.5, (front, back, dark)
    tab.dark(False)


def contrast(tab: Tab, *names: str) -> float:
    style = "getComputedStyle(document.documentElement)"
    high, low = sorted((luminance(tab.eval(f"{style}.getPropertyValue('--{n}').trim()")) for n in names), reverse=True)
    return (high + 0.05) / (low + 0.05)
