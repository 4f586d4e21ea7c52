"""The page of public threads shows what its programs give, on XLA's devices and on those of shardc."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

jaxlib = pytest.importorskip("jaxlib")


@pytest.fixture
def threads(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    yield importlib.import_module("threads")
    for name in ("threads", "threads_programs", "tables"):
        sys.modules.pop(name, None)


def shown(page: str, name: str) -> str:
    found = re.search(rf"<!-- table {name} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert found is not None
    return found[1].strip()


@pytest.mark.full  # minutes of one core
def test_the_page_is_made_by_its_programs(threads: Any) -> None:
    page = threads.PAGE.read_text(encoding="utf-8")
    if f"jaxlib {jaxlib.__version__}." not in page:
        pytest.skip("the page was made with another jaxlib")
    for name, text in threads.page_sections().items():
        assert shown(page, name) == text.strip()


def test_unknown_programs_are_refused(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["threads.py", "nope"])
    with pytest.raises(SystemExit, match=f"no program is called nope; the programs are {threads.THREADS[0].name}, "):
        threads.main()
