"""The cache in front of the compiler: links from sources, and the folder's size."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shardc.compiler.cache import cache
from shardc.compiler.cache.evict import evict, evict_now_and_then
from shardc.compiler.cache.serialize import to_bytes
from shardc.compiler.compile import compile_module
from shardc.compiler.compile_source import compile_source
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import program

CONTENT = "5" * 64


def doubled() -> Module:
    return program("x = f32[4] parameter(0)\nROOT r = f32[4] add(x, x)")


def negated() -> Module:
    return program("x = f32[4] parameter(0)\nROOT r = f32[4] negate(x)")


def never() -> Module:
    raise AssertionError("made although the cache knows it")


def test_entries_that_were_swapped_are_made_anew(tmp_path: Path) -> None:
    """Each file of the cache in the place of each other of its kind: none is taken for what it is not."""
    config = Config(cache_dir=tmp_path)
    modules = {"a" * 64: doubled, "b" * 64: negated}

    def made() -> list[str]:
        found = [compile_source(k, config, m) for k, m in modules.items()]
        return [hashlib.sha256(to_bytes(replace(e, seconds={}))).hexdigest() for e in found]

    wanted = made()
    files = [p for p in sorted(tmp_path.rglob("*")) if p.suffix in (".shardc", ".link", ".o")]
    kinds = {p.suffix for p in files}
    assert {".shardc", ".link"} <= kinds
    for kind in kinds:
        of_kind = [p for p in files if p.suffix == kind]
        contents = [p.read_bytes() for p in of_kind]
        for path, other in zip(of_kind, contents[1:] + contents[:1], strict=True):
            path.write_bytes(other)
        assert made() == wanted, kind


def entries(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"executables/*/*.{kind}"))


def test_known_source_is_not_made_again(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_source(CONTENT, config, doubled)
    found = compile_source(CONTENT, config, never)
    assert found == replace(first, seconds={"cache": 0.0})


def test_other_sources_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_source(CONTENT, config, doubled)
    assert compile_source("6" * 64, config, negated).objects != first.objects
    assert compile_source("", config, negated).objects != first.objects
    assert compile_source("", config, doubled).objects == first.objects
    for other in (
        replace(config, check=True),
        replace(config, dump_to=tmp_path / "dump"),
        replace(config, custom_calls={"f": CustomCall(address=1)}),
        replace(config, cache_dir=tmp_path / "other"),
    ):
        with pytest.raises(AssertionError, match="made although"):
            compile_source(CONTENT, other, never)
    monkeypatch.setattr(cache, "source_digest", lambda: "changed")
    with pytest.raises(AssertionError, match="made although"):
        compile_source(CONTENT, config, never)


def test_calls_by_name_are_part_of_the_source(tmp_path: Path) -> None:
    config = replace(Config(cache_dir=tmp_path), custom_calls={"f": CustomCall(evaluate=abs)})
    first = compile_source(CONTENT, config, doubled)
    again = replace(config, custom_calls={"f": CustomCall(evaluate=lambda call, x: x)})  # found when it is loaded
    assert compile_source(CONTENT, again, never).objects == first.objects
    for other in (
        CustomCall(evaluate=abs, sharding_rule="([i])->([i])"),
        CustomCall(address=1),
        CustomCall(evaluate=abs, expand=lambda b, call, x: b.add("negate", x)),  # changes the program itself
    ):
        with pytest.raises(AssertionError, match="made although"):
            compile_source(CONTENT, replace(config, custom_calls={"f": other}), never)
    with pytest.raises(AssertionError, match="made although"):
        compile_source(
            CONTENT, replace(config, custom_calls={**config.custom_calls, "g": CustomCall(address=1)}), never
        )


@pytest.mark.parametrize("text", [b"", b"\xff" * 65, b"0" * 64 + b"\n", b"../../../../etc/passwd\n"])
def test_damaged_link_is_a_miss(tmp_path: Path, text: bytes) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_source(CONTENT, config, doubled)
    (link,) = entries(tmp_path, "link")
    link.write_bytes(text)
    assert compile_source(CONTENT, config, doubled).objects == first.objects
    assert compile_source(CONTENT, config, never).objects == first.objects


def test_link_to_a_damaged_entry_is_a_miss(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_source(CONTENT, config, doubled)
    (entry,) = entries(tmp_path, "shardc")
    entry.write_bytes(entry.read_bytes()[:-9])
    assert compile_source(CONTENT, config, doubled).objects == first.objects
    entry.unlink()
    assert compile_source(CONTENT, config, doubled).objects == first.objects


def test_equal_programs_of_two_sources_share_an_entry(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    compile_source(CONTENT, config, doubled)
    assert compile_source("6" * 64, config, doubled).seconds == {"cache": 0.0}
    assert len(entries(tmp_path, "shardc")) == 1
    assert len(entries(tmp_path, "link")) == 2


@pytest.mark.parametrize("heard", [True, False])
def test_what_warned_warns_again(tmp_path: Path, heard: bool) -> None:
    config = Config(cache_dir=tmp_path)
    log = logging.getLogger("shardc")
    level = log.level

    def warned() -> Module:
        log.warning("something is left out")
        return doubled()

    try:
        log.setLevel(logging.WARNING if heard else logging.ERROR)
        compile_source(CONTENT, config, warned)
    finally:
        log.setLevel(level)
    with pytest.raises(AssertionError, match="made although"):
        compile_source(CONTENT, config, never)


def test_failing_programs_leave_nothing(tmp_path: Path) -> None:
    def bad() -> Module:
        raise InputError("no program")

    for _ in range(2):
        with pytest.raises(InputError, match="no program"):
            compile_source(CONTENT, Config(cache_dir=tmp_path), bad)
    assert not entries(tmp_path, "*")


def _aged(folder: Path, ages: dict[str, float], nbytes: int = 10_000) -> Callable[[], set[str]]:
    """Entries by name with the hours since their last use."""
    for name, hours in ages.items():
        path = folder / "executables" / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(nbytes))
        then = time.time() - 3600 * hours
        os.utime(path, (then, then))
    return lambda: {p.name for p in folder.glob("executables/*/*")}


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    names = _aged(tmp_path, {"aa1.shardc": 9, "ab2.link": 2, "aa3.shardc": 5, ".ac.part": 30, "ad5.shardc": 1})
    (tmp_path / "executables" / "aa" / "aa1.lock").touch()
    evict(tmp_path, 0)
    evict(tmp_path, 10**6)
    assert len(names()) == 6
    evict(tmp_path, 4 * 12288)  # each takes three pages; three quarters of the limit are left
    assert names() == {"ab2.link", "aa3.shardc", "ad5.shardc"}
    evict(tmp_path, 1)
    assert not names()
    evict(tmp_path / "absent", 1)


def test_reading_is_using(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    compile_source(CONTENT, config, doubled)
    compile_source("6" * 64, config, negated)
    long_ago = time.time() - 10**6
    for path in entries(tmp_path, "*"):
        os.utime(path, (long_ago, long_ago))
    compile_source(CONTENT, config, never)
    files = [*entries(tmp_path, "shardc"), *entries(tmp_path, "link")]
    evict(tmp_path, sum(-(-p.stat().st_size // 4096) * 4096 for p in files) - 1)
    assert compile_source(CONTENT, config, never)
    with pytest.raises(AssertionError, match="made although"):
        compile_source("6" * 64, config, never)


def test_compiling_keeps_the_folder_small(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, cache_bytes=1)
    compile_module(doubled(), config)
    assert not entries(tmp_path, "shardc")
    compile_module(negated(), config)  # somebody looked just now
    assert len(entries(tmp_path, "shardc")) == 1
    os.utime(tmp_path / "evicted", (0, 0))
    evict_now_and_then(tmp_path, config.cache_bytes)
    assert not entries(tmp_path, "shardc")
