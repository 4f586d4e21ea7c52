"""The op matrix's column for GPUs says what is so: kernels by who makes them, the host's work by name."""

from __future__ import annotations

import pytest
from llvmlite import ir

from shardc.analysis.op_matrix import op_matrix
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import KERNEL_EMITTERS, emit_gpu_kernel, find_kernel_emitter
from shardc.compiler.gpu.samples import sample
from shardc.compiler.gpu.support import kernel_emitter_name
from shardc.compiler.lower.for_gpu import lower_for_gpu
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation
from shardc.native.gpu.target import gpu_target

SUMS = {"column reduction", "row reduction", "row kernel"}


def test_every_row_says_who_computes() -> None:
    emitters = {h.name for h in KERNEL_EMITTERS}
    rows = {r.opcode: r for r in op_matrix()}
    for r in rows.values():
        kind, _, emitter = r.gpu.partition(": ")
        assert kind != "kernel" or emitter in emitters, r.opcode
        assert r.cpu == "kernel" or kind != "kernel", r.opcode
        assert r.cpu.startswith("- ") == r.gpu.startswith("- ")
    assert rows["transpose"].gpu == "kernel: loop"
    assert rows["batch-norm-training"].gpu == "as simpler ops"
    assert rows["sort"].gpu == "kernel: sort"
    assert [r.opcode for r in rows.values() if r.gpu.startswith("host")] == ["fft", "custom-call"]


@pytest.mark.parametrize("what", ["training", "inference", "grad"])
def test_sums_of_batch_normalisation_are_kernels_of_their_own(what: str) -> None:
    """Not summed again for every element."""
    i = sample(f"batch-norm-{what}")
    entry = Computation("main", (*i.operands, i), i)
    lowered = lower_for_gpu(make_module("m", entry), gpu_target("cuda"))
    kernels = [k for k in lowered.instructions if k.opcode not in ("parameter", "tuple", "get-tuple-element")]
    names = [find_kernel_emitter(GpuKernel(ir.Module("m"), k, "k", gpu_target("cuda"))) for k in kernels]
    assert what == "inference" or any(h is not None and h.name in SUMS for h in names)
    for k, emitter in zip(kernels, names, strict=True):
        inside = k.attrs["calls"] if k.opcode == "fusion" else (k,)
        assert emitter is None or emitter.name != "loop" or all(x.opcode != "reduce" for x in inside)


def test_what_the_host_computes_is_a_clear_error_of_the_kernels() -> None:
    with pytest.raises(UnsupportedError, match="fft has no GPU code"):
        emit_gpu_kernel(ir.Module("m"), sample("fft"), "k", gpu_target("cuda:sm_90"))


def test_ops_that_are_no_kernels_have_no_emitter() -> None:
    for opcode in ("tuple", "while", "all-reduce", "scan"):
        with pytest.raises(KeyError):
            kernel_emitter_name(opcode)
