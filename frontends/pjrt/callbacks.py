"""Python that programs call: ``jax.debug.print``, ``pure_callback``, ``io_callback``.

JAX lowers such a call to a custom call with a number, keeps the functions with its executable, and passes them with
each execution (`shardc.frontends.pjrt.native.contexts`), also to a program that it took from its cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from shardc.frontends.pjrt.native.contexts import HostFunctionsRecord
from shardc.hlo.errors import RunError

__all__ = ["HostFunctions"]


class HostFunctions(Sequence[Callable[..., Any]]):
    """The functions of the execution that runs, by their number in the program."""

    def __init__(self) -> None:
        self._address = 0

    @contextmanager
    def of(self, address: int) -> Iterator[None]:
        """Within the block they are those of the `HostFunctionsRecord` at ``address``; 0: there are none."""
        before, self._address = self._address, address
        try:
            yield
        finally:
            self._address = before

    def __len__(self) -> int:
        return HostFunctionsRecord.from_address(self._address).count if self._address else 0

    @overload
    def __getitem__(self, index: int) -> Callable[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Callable[..., Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        if not 0 <= index < len(self):
            raise RunError(
                "a program calls Python, and its functions are not here",
                fix="compile the function in this process: a serialized program has none of those that it calls",
            )
        record = HostFunctionsRecord.from_address(self._address)
        items = ctypes.c_void_p * len(self)
        found: Any = items.from_address(ctypes.c_void_p.from_buffer(record).value or 0)[index]
        return ctypes.cast(found, ctypes.py_object).value
