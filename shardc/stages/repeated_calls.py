"""Calls of a jitted function with arguments like those of the call before: nothing is looked at twice.

A training loop calls with the same pytree of the same shapes thousands of times. What a call needs to know, which
program it is and which leaves need a conversion, follows from the pytree and the *kind* of each leaf: an `Array`'s
layout (mostly the same object again), a NumPy array's shape and type, a Python scalar's class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.frontends.jax.context import need_numbers
from shardc.frontends.jax.program import JaxSignature
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.compiled import Compiled

__all__ = ["CallKind", "Repeated", "kinds_of"]


def kinds_of(leaves: Sequence[Any]) -> list[Any]:
    """What tells which program runs on ``leaves``, to be compared with ``==``."""
    return [
        x._layout if type(x) is Array else (x.shape, x.dtype) if type(x) is np.ndarray else _kind(x) for x in leaves
    ]


def _kind(x: Any) -> Any:
    if isinstance(x, bool | int | float | complex):
        return type(x)
    if type(x) is np.ndarray:
        return np.ndarray, x.shape, x.dtype
    layout, weak = getattr(x, "sharding", None), getattr(x, "weak_type", False)
    return type(x), getattr(x, "shape", None), getattr(x, "dtype", None), layout, weak


@dataclass(frozen=True, slots=True)
class CallKind:
    """A call: the ``leaves`` of its arguments, their structure ``tree`` and ``kinds``, and what is ``fixed``: static
    arguments, JAX's settings."""

    leaves: list[Any]
    tree: Any
    kinds: list[Any]
    fixed: Any


@dataclass(frozen=True, slots=True)
class Repeated:
    """``compiled`` for arguments of one kind: see `CallKind` for ``tree``, ``kinds`` and ``fixed``.

    ``taken`` are the leaves that the program takes, None for all of them in order; ``converted`` those of them, by
    leaf, that are not passed as they are.
    """

    compiled: Compiled
    signature: JaxSignature
    tree: Any
    kinds: list[Any]
    fixed: Any
    taken: tuple[int, ...] | None
    converted: tuple[int, ...]
    keys: bool

    @staticmethod
    def of(compiled: Compiled, kind: CallKind) -> Repeated:
        """Raises `InputError` where the leaves are not what was compiled."""
        compiled.driver  # noqa: B018  (in a job nothing is known before)
        signature: JaxSignature = compiled._signature
        signature.check_structure(kind.tree)
        leaves = kind.leaves
        every = not signature.constants and signature.kept == tuple(range(len(leaves)))
        converted = tuple(i for i in signature.kept if not signature.passes(i, leaves[i]))
        keys = any(r.key_impl is not None for r in signature.results)
        taken = None if every else signature.kept
        return Repeated(compiled, signature, kind.tree, kind.kinds, kind.fixed, taken, converted, keys)

    def fits(self, kind: CallKind) -> bool:
        """Whether a call of this kind is like this one."""
        return bool(kind.kinds == self.kinds and kind.tree == self.tree and kind.fixed == self.fixed)

    def __call__(self, leaves: list[Any]) -> Any:
        """One step on the leaves of the arguments; returns the function's result."""
        signature = self.signature
        for i in self.converted:
            leaves[i] = signature.value(i, leaves[i])
        if self.taken is not None:
            leaves = [*signature.constants, *(leaves[i] for i in self.taken)]
        results = self.compiled.driver(leaves)
        need_numbers(results)
        return signature.unflatten(results) if self.keys else signature.out_tree.unflatten(results)
