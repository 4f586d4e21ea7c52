"""Executables as files and in the cache."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardc.compiler.cache import cache
from shardc.compiler.cache.cache import fetch_object, module_key
from shardc.compiler.cache.serialize import load_executable, save, to_bytes
from shardc.compiler.compile import compile_module
from shardc.compiler.load.step import load_step, run_single
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.native.llvm.target import host_target
from tests.compiler.checking import SUM, assert_close, program, random_arguments

LINES = """
x = f32[6,4] parameter(0)
k = f32[4] constant({1, 2, 3, 5})
b = f32[6,4] broadcast(k), dimensions={1}
m = f32[6,4] multiply(x, b)
z = f32[] constant(0)
r = f32[6] reduce(m, z), dimensions={1}, to_apply=sum
g = f32[12] all-gather(r), dimensions={0}, replica_groups=[1,2]<=[2], channel_id=1, use_global_device_ids=true
p = f32[6] collective-permute(r), source_target_pairs={{0,1},{1,0}}, channel_id=2
ROOT t = (f32[6,4], f32[12], f32[6]) tuple(m, g, p)
"""


def simple() -> Module:
    return program("x = f32[6,4] parameter(0)\ne = f32[6,4] sine(x)\nROOT r = f32[6,4] add(e, x)")


def test_file_gives_the_same_executable(tmp_path: Path) -> None:
    module = program(LINES, SUM, ", num_partitions=2").with_(partitioned=True)
    made = compile_module(module, Config(cache_dir=tmp_path / "cache"))
    path = tmp_path / "step.shardc"
    save(made, path)
    assert load_executable(path) == made
    assert list(load_executable(path).memory) == list(made.memory)
    assert to_bytes(load_executable(path)) == to_bytes(made)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "step.shardc"]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    made = compile_module(simple(), Config(cache_dir=tmp_path))
    data = to_bytes(made)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0x10
    for number, broken in enumerate((b"", b"hello", data[:-30], data[: len(data) // 2], bytes(flipped))):
        path = tmp_path / f"broken{number}"
        path.write_bytes(broken)
        with pytest.raises(InputError):
            load_executable(path)
    with pytest.raises(InputError, match="cannot read"):
        load_executable(tmp_path / "absent")


def test_other_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("manifest.json", '{"format": 0}')
        z.writestr("step.o", b"")
        z.writestr("constants.bin", b"")
    with pytest.raises(InputError, match="format 0"):
        load_executable(path)


def test_other_machines_are_named(tmp_path: Path) -> None:
    made = compile_module(simple(), Config(cache_dir=tmp_path))
    with pytest.raises(EnvironmentProblem, match="this CPU lacks warp9"):
        load_step(replace(made, features=made.features + ",+warp9"))
    with pytest.raises(EnvironmentProblem, match="was compiled for riscv"):
        load_step(replace(made, target="riscv64-unknown-linux-gnu rv64"))


def test_unknown_target_is_named() -> None:
    with pytest.raises(UnsupportedError, match="unknown compile target 'abacus'"):
        compile_module(simple(), target="abacus")


def test_cache_answers_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_module(simple(), config)
    monkeypatch.setattr("shardc.compiler.compile.build_executable", lambda *a, **k: pytest.fail("compiled again"))
    second = compile_module(simple(), config)
    assert second.objects == first.objects and second.seconds == {"cache": 0.0}
    args = random_arguments(simple())
    assert_close(run_single(second, args), evaluate(simple(), args))


def test_damaged_cache_entry_is_made_again(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    first = compile_module(simple(), config)
    (entry,) = tmp_path.rglob("*.shardc")
    entry.write_bytes(entry.read_bytes()[:100])
    assert compile_module(simple(), config).objects == first.objects
    assert load_executable(entry).objects == first.objects


def test_unwritable_cache_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    config = Config(cache_dir=blocked / "cache")
    for _ in range(2):
        compile_module(simple(), config)
    (record,) = caplog.records
    assert "SHARDC_CACHE_DIR" in record.getMessage()


def test_key_depends_on_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    host, base = host_target(), simple()
    other = program("x = f32[6,4] parameter(0)\ne = f32[6,4] cosine(x)\nROOT r = f32[6,4] add(e, x)")
    keys = [
        module_key(base, host),
        module_key(other, host),
        module_key(base, replace(host, cpu="other")),
        module_key(base.with_(donors=(0,)), host),
        module_key(base.with_(num_partitions=2), host),
    ]
    assert len(set(keys)) == len(keys)
    assert module_key(simple(), host) == keys[0]
    monkeypatch.setattr(cache, "source_digest", lambda: "changed")
    assert module_key(base, host) != keys[0]


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    made = compile_module(simple(), Config(cache_dir=tmp_path))
    with pytest.raises(InputError, match="takes 1 argument"):
        run_single(made, [])
    with pytest.raises(InputError, match=r"argument 0 is float64\[6, 4\], not f32\[6,4\]"):
        run_single(made, [np.zeros((6, 4))])


def test_an_object_of_our_own_is_kept_and_made_again_when_damaged(tmp_path: Path) -> None:
    config, made = Config(cache_dir=tmp_path), []

    def make() -> bytes:
        made.append(1)
        return b"object"

    for text, count in (("a", 1), ("a", 1), ("b", 2)):
        assert fetch_object(text, host_target(), config, make) == b"object"
        assert len(made) == count
    for path in tmp_path.rglob("*.o"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert fetch_object("a", host_target(), config, make) == b"object"
    assert len(made) == 3
