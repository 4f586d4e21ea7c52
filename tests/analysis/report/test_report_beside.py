"""Two reports on one page: both whole, what differs on top, and pages of other kinds refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardc
from shardc.analysis.report.page import VERSION
from shardc.analysis.report.write import put_beside
from shardc.cli.app import main
from shardc.hlo.errors import InputError
from tests.analysis.report.browser import Browser, need_chromium

STEP = Path(shardc.__file__).parent / "demo" / "guide" / "step.mlir"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled step on 4 devices, and on 8 beside it."""
    folder = tmp_path_factory.mktemp("both")
    small, large = folder / "small.html", folder / "large.html"
    common = ["report", str(STEP), "--machine", "h100-dgx", "--remedies", "0", "-q"]
    assert main([*common, "-o", str(large), "--mesh", "data=4"]) == 0
    assert main([*common, "-o", str(small), "--beside", str(large)]) == 0
    return small


def test_both_are_there_with_what_differs(both: Path, tmp_path: Path) -> None:
    with Browser(need_chromium(), tmp_path) as browser:
        tab = browser.open(both)
        rows = "[...document.querySelectorAll('.differences tbody tr')].map((e) => e.innerText.split('\\t'))"
        found = {row[0]: row[1:] for row in tab.eval(rows)}
        assert found["devices"] == ["4", "8", "+100%"]
        assert found["executed collectives"] == ["3", "4", "+33.3%"]
        heads = tab.eval("[...document.querySelectorAll('header p:first-of-type')].map((e) => e.innerText)")
        assert len(heads) == 2 and heads[0].startswith("4 devices") and heads[1].startswith("8 devices")
        tab.eval("window.dispatchEvent(new Event('beforeprint'))")
        for section, rows in (("collectives", 3), ("second-collectives", 4)):
            tab.wait(f"document.querySelectorAll('#{section} tbody tr').length === {rows}")
        tab.click("#second-collectives button.opener")
        assert tab.eval("document.querySelectorAll('#collectives .detail').length") == 0
        assert tab.eval("document.querySelectorAll('#second-collectives .detail').length") == 1
        for width in (400, 1280):
            tab.resize(width=width)
            tab.eval("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
            assert tab.eval("document.documentElement.scrollWidth") <= width
        assert tab.problems() == []


def test_a_page_that_is_no_report_is_refused(both: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.html").write_text("<html></html>")
    (tmp_path / "old.html").write_text(both.read_text().replace(f'"version":{VERSION}', '"version":1'))
    with pytest.raises(InputError, match="is not a report"):
        put_beside(both, tmp_path / "other.html")
    with pytest.raises(InputError, match="another release"):
        put_beside(both, tmp_path / "old.html")
    with pytest.raises(InputError, match="there is no report"):
        put_beside(both, tmp_path / "none.html")
    output = tmp_path / "new.html"
    assert main(["report", str(STEP), "-o", str(output), "--beside", str(tmp_path / "none.html")]) == 2
    assert "there is no report" in capsys.readouterr().err and not output.exists()
    assert main(["report", str(STEP), "-o", "-", "--beside", str(both)]) == 2
    assert "a comparison of two reports needs an output file" in capsys.readouterr().err
