"""PTX and AMD objects as text and bytes: what may be called, vector accesses, the same bytes every time, and tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from llvmlite import ir

from shardc.native.gpu import assemble as tools
from shardc.native.gpu.amdgpu import AmdgpuCode, emit_amdgpu, new_amdgpu_module
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.intrinsics import AMDGPU, NVPTX, check_externals
from shardc.native.gpu.nvptx import NvptxCode, emit_ptx, new_nvptx_module
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.target import GPU_ARCHS, gpu_target
from shardc.native.math.vector import F32, I32, PTR
from tests.native.gpu.grid_kernels import Sketch, at, define, i32, place_in_grid

TARGET = gpu_target("cuda:sm_90")
FOUR = ir.VectorType(F32, 4)


def _scale(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    place = b.shl(place_in_grid(c, b, 128), i32(2))
    value = b.load(at(b, p[1], place), typ=FOUR, align=16)
    b.store(b.fadd(value, value), at(b, p[2], place), align=16)


SCALE = Sketch("scale", 3, 128, _scale, (1,))


def _ptx(*sketches: Sketch) -> bytes:
    module = new_nvptx_module("m", TARGET)
    for sketch in sketches:
        define(module, NvptxCode("sm_90"), sketch)
    return emit_ptx(module, TARGET)


def test_vectors_of_16_bytes_past_the_first_cache() -> None:
    text = _ptx(SCALE).decode()
    assert "ld.global.nc.v4" in text
    assert "st.global.v4" in text
    assert ".maxntid 128" in text


def test_the_same_text_gives_the_same_bytes() -> None:
    assert _ptx(SCALE) == _ptx(SCALE)


@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90", "rocm:gfx90a"])
def test_every_intrinsic_lowers(name: str) -> None:
    """In a process of its own, which LLVM ends where it cannot."""
    command = [sys.executable, "-m", "tests.native.gpu.intrinsic_kernels", name]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10000


@pytest.mark.parametrize("name", ["llvm.exp.f32", "llvm.nvvm.made.up", "expf", "llvm.coro.id"])
def test_unknown_functions_are_refused(name: str) -> None:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        function = ir.Function(b.module, ir.FunctionType(F32, [F32]), name)
        b.store(b.call(function, [b.load(p[1], typ=F32)]), p[2])

    with pytest.raises(ValueError, match=f"may not call {name}"):
        _ptx(Sketch("k", 3, 32, body))


def test_declarations_are_found() -> None:
    text = 'declare float @"llvm.fma.v4f32"(float)\ndeclare void @free(ptr)\ndefine void @k() {\nret void\n}'
    with pytest.raises(ValueError, match=r"may not call free$"):
        check_externals(text, NVPTX)
    assert not any("nvvm" in n for n in AMDGPU)
    assert not any("amdgcn" in n for n in NVPTX)


def test_targets_by_name() -> None:
    assert str(gpu_target("cuda:sm_80")) == "nvptx64-nvidia-cuda sm_80"
    assert gpu_target("cuda-emulated").kind == "emulated"
    assert gpu_target("rocm").warp == grid_code(gpu_target("rocm")).warp == 64
    for bad in ("cuda:gfx90a", "rocm:sm_80", "cuda:sm_20", "cpu", "tpu"):
        with pytest.raises(KeyError):
            gpu_target(bad)
    assert all(chip.shared_bytes >= 48 << 10 for chip in GPU_ARCHS.values())


def test_stack_slots_of_amd() -> None:
    """They lie in an address space of their own, of which bodies know nothing."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        slots = b.alloca(I32, 4)
        for n in range(4):
            b.store(i32(n), at(b, slots, i32(n), I32))
        picked = at(b, slots, b.and_(c.thread(b), i32(3)), I32)
        b.store(b.load(picked, typ=I32), p[0])

    target = gpu_target("rocm")
    module = new_amdgpu_module("m", target)
    define(module, AmdgpuCode(), Sketch("k", 1, 64, body))
    assert emit_amdgpu(module, target).startswith(b"\x7fELF")


def test_what_a_kernel_takes() -> None:
    found = tools.assemble(_ptx(SCALE), "sm_90")
    linked = tools.link_ptx(_ptx(SCALE), "sm_90")
    assert found.data.startswith(b"\x7fELF")
    assert linked.data.startswith(b"\x7fELF")
    for cubin in (found, linked):
        (usage,) = cubin.kernels.values()
        assert 4 <= usage.registers <= 24
        assert usage.spill_stores == usage.spill_loads == usage.stack == usage.barriers == 0


def test_words_of_the_assembler() -> None:
    log = """ptxas info    : Compiling entry function 'k0' for 'sm_80'
ptxas info    : Function properties for k0
    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'k1' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 21 registers, 380 bytes cmem[0]"""
    assert tools._usages(log) == {"k0": tools.Usage(168, 8, 12, 24, 1024, 1), "k1": tools.Usage(21)}


@pytest.mark.parametrize("tool", [tools.assemble, tools.link_ptx])
def test_refused_text(tool: Callable[[bytes, str], tools.Cubin]) -> None:
    with pytest.raises(GpuFault, match="syntax error"):
        tool(b".version 7.8\n.target sm_90\nfoo", "sm_90")


def test_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tools.can_assemble()
    monkeypatch.setattr(tools, "find_ptxas", lambda: None)
    monkeypatch.setattr(tools, "_has_linker", lambda: False)
    assert not tools.can_assemble()
    with pytest.raises(GpuProblem, match="no assembler") as caught:
        tools.assemble(_ptx(SCALE), "sm_90")
    assert "pip install" in str(caught.value)


def test_a_tool_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "find_ptxas", lambda: str(tmp_path / "ptxas"))
    with pytest.raises(GpuProblem, match="does not run"):
        tools.assemble(_ptx(SCALE), "sm_90")


def test_pointers_are_generic() -> None:
    """Shared and global memory go through the same pointers; LLVM finds out which is which."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        place = at(b, c.shared(b, 16), c.thread(b))
        assert place.type == p[0].type == PTR
        b.store(b.load(at(b, p[0], c.thread(b)), typ=F32), place)
        c.barrier(b)
        b.store(b.load(at(b, c.shared(b, 0), c.thread(b)), typ=F32), p[1])

    text = _ptx(Sketch("k", 2, 32, body)).decode()
    assert "st.shared" in text
    assert "ld.shared" in text
    assert "st.global" in text
