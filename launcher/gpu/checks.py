"""A step's checks on a GPU: the first false one of each device is kept there until the host looks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from shardc.compiler.executable import Executable, check_error, encode_failed_check
from shardc.hlo.errors import RunError
from shardc.launcher.gpu.devices import gpu_errors
from shardc.launcher.gpu.memory import GpuContext
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.images import gpu_image, new_gpu_module
from shardc.native.gpu.runtime import LaunchShape, Stream
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I8, I32, constant

__all__ = ["Checks"]

_SYMBOL = "check"
#: Bytes from one device's word to the next one's: kernels take arrays at multiples of 16.
_STRIDE = 256


class Checks:
    """The checks of ``executable`` on ``devices``."""

    def __init__(self, context: GpuContext, executable: Executable, devices: Sequence[int]) -> None:
        self._context, self._executable = context, executable
        self._words = context.pool.lease(_STRIDE * len(devices))
        self._address = {d: self._words.address + _STRIDE * n for n, d in enumerate(devices)}
        with gpu_errors():
            module = context.runtime.load([gpu_image(_module(context.runtime.target), context.runtime.target)])
            self._kernel = module.kernel(_SYMBOL)
        self._clear()

    def put(self, index: int, device: int, predicate: int, stream: Stream) -> None:
        """Check ``index`` of ``device``, whose byte is at address ``predicate``."""
        places = [predicate, self._address[device]]
        self._context.runtime.launch(self._kernel, LaunchShape((1, 1, 1), 1), places, index, stream)

    def look(self) -> RunError | None:
        """Wait for all that was started; what the first check says that was false."""
        found = [np.zeros(4, np.uint8) for _ in self._address]
        self._context.download(list(zip(self._address.values(), found, strict=True)))
        numbers = [int(word.view(np.int32)[0]) for word in found]
        false = [n - 1 for n in numbers if n]
        if not false:
            return None
        self._clear()
        return check_error(self._executable, encode_failed_check(false[0]))

    def _clear(self) -> None:
        with gpu_errors():
            self._context.runtime.fill(self._words.address, 0, _STRIDE * len(self._address), self._context.main)


def _module(target: GpuTarget) -> ir.Module:
    """``check(predicate, word)``, its number in the device's place: the word is 0, or 1 + the first false one's."""
    module = new_gpu_module("checks", target)
    code = grid_code(target)
    function = code.define(module, _SYMBOL, 2, (0,), 1)
    slots = ir.IRBuilder(function.append_basic_block("entry"))
    body = function.append_basic_block("body")
    b = ir.IRBuilder(body)
    predicate, word = code.pointers(function)
    holds = b.icmp_unsigned("!=", b.load(predicate, typ=I8, align=1), constant(I8, 0))
    earlier = b.icmp_unsigned("!=", b.load(word, typ=I32, align=4), constant(I32, 0))
    with b.if_then(b.not_(b.or_(holds, earlier))):
        b.store(b.add(code.device(function), constant(I32, 1)), word, align=4)
    code.leave(b)
    code.enter(slots)
    slots.branch(body)
    return module
