"""The digest of the compiler's sources: kept beside the cache, and read anew when a file was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.compiler.cache import sources


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of sources with a file in each part, which asks for its digest, and a cache folder."""
    for part in sources._PARTS:
        (tmp_path / "tree" / part / "cache").mkdir(parents=True)
        (tmp_path / "tree" / part / "cache" / "a.py").write_text(f"# {part}")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "tree" / "compiler" / "cache" / "a.py"))
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "tree"


def digest() -> str:
    return sources.source_digest.__wrapped__()


def kept(tree: Path) -> list[Path]:
    return sorted(p for p in (tree.parent / "kept").rglob("*") if p.is_file())


def test_kept_digest_is_used(tree: Path) -> None:
    first = digest()
    (entry,) = kept(tree)
    assert entry.read_text() == first == digest()
    entry.write_text("0" * 64)
    assert digest() == "0" * 64  # the files were not read


def test_every_change_of_a_file_is_seen(tree: Path) -> None:
    file, found = tree / "hlo" / "cache" / "a.py", [digest()]
    file.write_text("# olh")  # as long as it was
    found.append(digest())
    (tree / "hlo" / "b.py").write_text("")
    found.append(digest())
    file.unlink()
    found.append(digest())
    assert len(set(found)) == 4
    assert len(kept(tree)) == 4


def test_the_same_text_elsewhere_has_the_same_digest(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest()
    tree.rename(tree.with_name("other"))
    monkeypatch.setattr(sources, "__file__", str(tree.with_name("other") / "compiler" / "cache" / "a.py"))
    assert digest() == first
    assert len(kept(tree)) == 2


@pytest.mark.parametrize("spoilt", [b"", b"\xff" * 64, b"0" * 63])
def test_a_spoilt_entry_is_made_again(tree: Path, spoilt: bytes) -> None:
    first = digest()
    (entry,) = kept(tree)
    entry.write_bytes(spoilt)
    assert digest() == first == entry.read_text()


def test_without_a_cache_folder_the_files_are_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest()
    (tree.parent / "file").write_text("")
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tree.parent / "file"))
    assert digest() == first
