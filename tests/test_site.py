"""The site builds without a warning: every link leads somewhere, every page is in the contents."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.filterwarnings("ignore")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    from sphinx.cmd.build import main

    assert main(["-q", "-W", "-n", "-b", "html", str(ROOT / "docs"), str(tmp_path / "site")]) == 0
    assert (tmp_path / "site" / "start.html").exists()
    assert "five minutes" in (tmp_path / "site" / "start.html").read_text(encoding="utf-8")
