"""Whether the ranks of a job have given the same values, where each rank gives them as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import InputError

__all__ = ["SameValues", "value_text", "who_has_what"]


@dataclass(frozen=True, slots=True)
class SameValues:
    """Digests of values that this rank laid out, by name, until the ranks have compared them."""

    transport: Transport
    found: dict[str, str] = field(default_factory=dict)
    _fixes: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: NDArray[Any], fix: str) -> None:
        """``value`` was laid out as ``name``, and is to be compared; ``fix`` says how ranks get the same. This
        communicates nothing."""
        if self.transport.process_count > 1:
            self.found[name] = value_text(value)
            self._fixes[name] = fix

    def forget(self, name: str) -> None:
        """``name`` has a value now that each rank reads by itself from one place."""
        self.found.pop(name, None)

    def compare(self, doing: str) -> None:
        """Raise `InputError` unless all ranks have added equal values, which are compared again then. All ranks call it
        together."""
        if not self.found:
            return
        everybody = self.transport.exchange_objects(self.found, doing=f"{doing} (values are compared)")
        for name in self.found:
            if told := who_has_what(self.transport.ranks, [other.get(name, "no value") for other in everybody]):
                raise InputError(f"the ranks were given different values: {told}", where=name, fix=self._fixes[name])
        self.found.clear()


def value_text(array: NDArray[Any]) -> str:
    """Type, shape and value in few words: equal for equal bytes."""
    title = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    if array.size == 1:
        return f"{title} {array.item()!r}, bytes {array.tobytes().hex()}"
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{title} of digest {hashlib.blake2b(data.data, digest_size=16).hexdigest()}"


def who_has_what(ranks: Sequence[int], values: Sequence[str]) -> str:
    """Which ranks have which of the ``values``, one of each rank; empty where all are equal."""
    groups: dict[str, list[int]] = {}
    for rank, value in zip(ranks, values, strict=True):
        groups.setdefault(value, []).append(rank)
    return "; ".join(f"ranks {ranks} have {value}" for value, ranks in groups.items()) if len(groups) > 1 else ""
