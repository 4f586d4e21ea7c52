"""PTX to machine code without a GPU: by ``ptxas``, or by NVIDIA's nvJitLink library where only that is there.

Neither needs a driver. Where both are missing, the driver compiles PTX when it is loaded.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shardc.native.gpu.problems import GpuFault, GpuProblem

__all__ = ["Cubin", "Usage", "assemble", "can_assemble", "find_ptxas", "link_ptx"]

_TIMEOUT = 300
_FIX = "install ptxas (pip install nvidia-cuda-nvcc), or nvidia-nvjitlink and cuda-bindings"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a thread of a kernel takes: registers, bytes that are spilled and of stack, and barriers and bytes of static
    shared memory of its block."""

    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0
    barriers: int = 0


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one architecture, and what its kernels take, by symbol."""

    data: bytes
    kernels: Mapping[str, Usage]


@lru_cache(maxsize=1)
def find_ptxas() -> str | None:
    """The assembler of NVIDIA's wheel, or the one on the path."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    found = sorted(p for f in folders for pattern in ("cu*/bin/ptxas", "cuda_nvcc/bin/ptxas") for p in f.glob(pattern))
    return str(found[-1]) if found else shutil.which("ptxas")


@lru_cache(maxsize=1)
def _has_linker() -> bool:
    """Whether nvJitLink is installed and can be loaded."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def can_assemble() -> bool:
    """Whether `assemble` has something to work with."""
    return find_ptxas() is not None or _has_linker()


def assemble(ptx: bytes, arch: str) -> Cubin:
    """Machine code of ``ptx`` for ``arch`` (``sm_90``).

    `GpuProblem` when there is no assembler; `GpuFault` with its words when it refuses the text.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        return link_ptx(ptx, arch)
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        source, target = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_bytes(ptx)
        command = [ptxas, "-v", "-O3", f"-arch={arch}", str(source), "-o", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise GpuProblem(f"the assembler does not run: {e}", where=ptxas, fix=_FIX) from None
        if done.returncode:
            raise _refused(done.stderr or done.stdout, arch)
        return Cubin(target.read_bytes(), _usages(done.stderr + done.stdout))


def link_ptx(ptx: bytes, arch: str) -> Cubin:
    """The same by nvJitLink, within this process."""
    if not _has_linker():
        raise GpuProblem("no assembler for PTX is installed", where=arch, fix=_FIX)
    from cuda.bindings import nvjitlink

    options = [f"-arch={arch}", "-O3", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "kernels")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as e:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            raise _refused(log.decode(errors="replace") or str(e), arch) from None
        data = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, data)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return Cubin(bytes(data), _usages(log.decode(errors="replace")))


def _refused(words: str, arch: str) -> GpuFault:
    return GpuFault(f"the assembler rejects the code: {words.strip(chr(0)).strip()}", where=arch)


_KERNEL = re.compile(r"Compiling entry function '([^']+)'")


def _usages(log: str) -> dict[str, Usage]:
    """What the assembler says of each kernel."""
    parts = _KERNEL.split(log)
    return {name: _usage(words) for name, words in zip(parts[1::2], parts[2::2], strict=True)}


def _usage(words: str) -> Usage:
    def number(pattern: str) -> int:
        found = re.search(pattern, words)
        return int(found[1]) if found else 0

    return Usage(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes smem"),
        number(r"used (\d+) barriers"),
    )
