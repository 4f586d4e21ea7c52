"""The op matrix's column for GPUs says what is so: kernels by who makes them, the host's work by name."""

from __future__ import annotations

import pytest
from llvmlite import ir

from shardc.compiler.gpu.kernel import HEROES, emit_gpu_kernel
from shardc.compiler.gpu.samples import sample
from shardc.compiler.gpu.support import gpu_hero
from shardc.hlo.errors import UnsupportedError
from shardc.launcher.op_matrix import op_matrix
from shardc.native.gpu.target import gpu_target


def test_every_row_says_who_computes() -> None:
    heroes = {h.name for h in HEROES}
    rows = {r.opcode: r for r in op_matrix()}
    for r in rows.values():
        kind, _, hero = r.gpu.partition(": ")
        assert kind != "kernel" or hero in heroes, r.opcode
        assert (r.cpu == "kernel") == (kind in ("kernel", "host")), r.opcode
        assert r.cpu.startswith("- ") == r.gpu.startswith("- ")
    assert rows["transpose"].gpu == "kernel: loop"
    assert rows["sort"].gpu == "kernel: sort"
    assert [r.opcode for r in rows.values() if r.gpu.startswith("host")] == ["fft", "custom-call"]


def test_what_the_host_computes_is_a_clear_error_of_the_kernels() -> None:
    with pytest.raises(UnsupportedError, match="fft has no GPU code"):
        emit_gpu_kernel(ir.Module("m"), sample("fft"), "k", gpu_target("cuda:sm_90"))


def test_ops_that_are_no_kernels_have_no_hero() -> None:
    for opcode in ("tuple", "while", "all-reduce", "scan"):
        with pytest.raises(KeyError):
            gpu_hero(opcode)
