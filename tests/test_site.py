"""The site builds without a warning, can be searched without a network, and is read at 1,280 and 400 pixels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.analysis.report.browser import Browser, need_chromium
from tests.analysis.report.legibility import cut_text, low_contrast, overlapping_text

ROOT = Path(__file__).resolve().parent.parent
READ = ("start", "concepts/collectives")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, also where several processes test."""
    from sphinx.cmd.build import main

    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with FileLock(base / "site.lock"):
        if not (base / "site.built").exists():
            assert main(["-q", "-W", "-n", "-b", "html", str(ROOT / "docs"), str(base / "site")]) == 0
            (base / "site.built").touch()
    return base / "site"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.filterwarnings("ignore")
def test_the_site_builds_strictly(site: Path) -> None:
    """Every link leads somewhere, every page is in the contents."""
    assert "five minutes" in (site / "start.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_links_to_terms_lead_to_their_rows(site: Path) -> None:
    linked = {
        name
        for page in site.rglob("*.html")
        for name in re.findall(r'href="(?:\.\./)*glossary\.html#([\w-]+)"', page.read_text(encoding="utf-8"))
    }
    anchors = set(re.findall(r'id="([\w-]+)"', (site / "glossary.html").read_text(encoding="utf-8")))
    assert {"axis", "sharding", "collective"} <= linked <= anchors


@pytest.mark.filterwarnings("ignore")
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles and pictures are files of the site."""
    loaded = re.compile(
        r"""<(?:script|img|iframe)\b[^>]*\ssrc="([^"]+)"|<link\b[^>]*rel="stylesheet"[^>]*href="([^"]+)"""
    )
    for page in site.rglob("*.html"):
        for match in loaded.finditer(page.read_text(encoding="utf-8")):
            address = match[1] or match[2]
            assert not re.match(r"(?:\w+:)?//", address), f"{page.name}: {address}"
            assert (page.parent / address.split("?")[0]).exists(), f"{page.name}: {address}"


@pytest.mark.filterwarnings("ignore")
def test_the_search_finds_a_term_from_a_file(site: Path, browser: Browser) -> None:
    tab = browser.open((site / "search.html").resolve().as_uri() + "?q=reduce-scatter")
    # Results come one by one, in the order of how well they match.
    tab.wait("[...document.querySelectorAll('#search-results li a')].some((e) => e.innerText === 'Collectives')")
    tab.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("page", READ)
def test_a_page_of_the_site_can_be_read(site: Path, browser: Browser, page: str, width: int) -> None:
    tab = browser.open(site / f"{page}.html", width=width)
    for dark in (False, True):
        tab.dark(dark)
        assert low_contrast(tab) == []
    tab.dark(False)
    assert overlapping_text(tab) == []
    # The sidebar of a narrow window waits beside it.
    assert [text for text in cut_text(tab) if "sidebar" not in text] == []
    assert tab.eval("document.documentElement.scrollWidth") <= width
    tab.close()
