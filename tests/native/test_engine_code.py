"""The engine's code is made for every kind of CPU, and is the same text each time."""

from __future__ import annotations

import pytest

from shardc.hlo.ir.types import DTYPES
from shardc.native.collectives.reducing import reducing_module
from shardc.native.collectives.virtual import virtual_ir
from shardc.native.collectives.work import work_ir
from shardc.native.llvm.jit import compile_ir
from shardc.native.llvm.target import named_target
from shardc.native.memory.copying import copying_module


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64", "apple-m1"])
def test_every_cpu(cpu: str) -> None:
    target = named_target(cpu)
    modules = [work_ir(target), virtual_ir(target), copying_module(target)]
    modules += [reducing_module(*kind, target) for kind in (("add", DTYPES["f16"]), ("multiply", DTYPES["c128"]))]
    assert all(compile_ir(m, target) for m in modules)


def test_equal_text() -> None:
    def text() -> list[str]:
        return [str(m) for m in (work_ir(), virtual_ir(), reducing_module("maximum", DTYPES["f8e4m3fn"]))]

    assert text() == text()
