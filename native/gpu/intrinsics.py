"""What a GPU's code may call: LLVM ends the whole process on an intrinsic that a target cannot lower.

So modules are looked through before they go to LLVM. Every name here is assembled by a test at every type in use.
"""

from __future__ import annotations

import re

from shardc.native.math.vector import INTRINSICS

__all__ = ["AMDGPU", "NVPTX", "check_externals"]

_AXES = "xyz"
_COMMON = frozenset(INTRINSICS)

#: NVIDIA's own.
NVPTX = _COMMON | {
    "llvm.nvvm.read.ptx.sreg.tid.x",
    *(f"llvm.nvvm.read.ptx.sreg.{n}.{a}" for n in ("ctaid", "nctaid") for a in _AXES),
    "llvm.nvvm.barrier.cta.sync.aligned.all",
    "llvm.nvvm.bar.warp.sync",
    "llvm.nvvm.membar.gl",
    "llvm.nvvm.ex2.approx.ftz.f",
    *(f"llvm.nvvm.shfl.sync.{mode}.i32" for mode in ("bfly", "up", "idx")),
    *(f"llvm.nvvm.mma.m16n8k16.row.col.{t}" for t in ("bf16", "f32.f32")),
    "llvm.nvvm.mma.m16n8k8.row.col.tf32",
    "llvm.nvvm.mma.m8n8k4.row.col.f64",
    *(f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{n}{t}.b16.p3" for n in (1, 2, 4) for t in ("", ".trans")),
    *(f"llvm.nvvm.cp.async.{n}{s}" for n in ("ca.shared.global.4", "ca.shared.global.8") for s in ("", ".s")),
    *(f"llvm.nvvm.cp.async.cg.shared.global.16{s}" for s in ("", ".s")),
    "llvm.nvvm.cp.async.commit.group",
    "llvm.nvvm.cp.async.wait.group",
}
#: AMD's own.
AMDGPU = _COMMON | {
    "llvm.amdgcn.workitem.id.x",
    *(f"llvm.amdgcn.workgroup.id.{a}" for a in _AXES),
    "llvm.amdgcn.implicitarg.ptr",
    "llvm.amdgcn.s.barrier",
    "llvm.amdgcn.wave.barrier",
    "llvm.amdgcn.ds.bpermute",
}

_DECLARED = re.compile(r'^declare\b[^@]*@"?([^"(]+)"?\(', re.MULTILINE)
_TYPES = re.compile(r"(\.(v\d+)?(i\d+|f\d+|p\d+))+$")


def check_externals(text: str, known: frozenset[str]) -> None:
    """ValueError when a module's text declares functions that are not ``known`` (with or without types behind)."""
    bad = sorted({n for n in _DECLARED.findall(text) if n not in known and _TYPES.sub("", n) not in known})
    if bad:
        raise ValueError(f"GPU code may not call {', '.join(bad)}")
