"""Every second element of an array, from whole vectors: nothing is read that the array does not hold."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.hlo.ir.types import DTYPES
from shardc.hlo.ir.types import array_shape as f
from shardc.native.llvm import jit
from shardc.native.threads.pool import PARALLEL, pool, pool_object
from tests.compiler.kernel_runner import check, instruction, random

_PROT_NONE = 0


def at_the_end(a: np.ndarray[Any, Any]) -> tuple[mmap.mmap, int]:
    """Memory that holds ``a`` right before a page that nobody may read, and its address there."""
    page = mmap.PAGESIZE
    pages = -(-a.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    place = start + pages * page - a.nbytes
    ctypes.memmove(place, a.ctypes.data, a.nbytes)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + pages * page), ctypes.c_size_t(page), _PROT_NONE) == 0
    return memory, place


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "s8", "c64", "pred"])
def test_alternate_elements(dtype: str) -> None:
    for size in (1, 2, 7, 31, 32, 33, 63, 64, 65, 131):
        for start in (0, 1):
            if start < size:
                i = instruction("slice", f(dtype, 3, size), slice=((0, 3, 1), (start, size, 2)))
                check(i, [random(f(dtype, 3, size))])


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="no page protection here")
@pytest.mark.parametrize("size", [9, 31, 33, 64, 65])
def test_nothing_behind_the_end(size: int) -> None:
    i = instruction("slice", f("f32", size), slice=((0, size, 2),))
    module = jit.new_module("test")
    emit_kernel(module, i, "k")
    loaded = jit.load_object(jit.compile_ir(module), ["k"], {PARALLEL: pool(pool_object()).address()})
    a = np.arange(size, dtype=DTYPES["f32"].numpy)
    memory, place = at_the_end(a)
    out = np.zeros(i.shape.dims, np.float32)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(loaded.address("k"))(
        place, out.ctypes.data, 0
    )
    np.testing.assert_array_equal(out, a[::2])
    del memory
