"""State: arguments that a step gives back changed, for the next step, told by names and shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.types import Shape

__all__ = ["find_state"]

#: What an argument or a result is called within its tree, and its shape.
_Key = tuple[str, Shape]

#: ``state['params']['w']`` is ``['params']['w']`` of ``state``, ``result[0]['params']['w']`` that of the first result.
_ARGUMENT = re.compile(r"\w+(?P<rest>[\[.].*)")
_RESULT = re.compile(r"result(\[\d+\])?(?P<rest>[\[.].*)")


def find_state(module: Module) -> list[tuple[int, int]]:
    """Pairs (argument, result), by number of leaf: those that are called alike within their trees, of one shape, where
    there are as many of the ones as of the others; in order."""
    if any(p.shape.is_tuple for p in module.parameters):
        return []
    arguments = _places(_ARGUMENT, module.argument_names, [p.shape for p in module.parameters])
    results = _places(_RESULT, module.result_names, module.results)
    pairs = ((numbers, results.get(k, [])) for k, numbers in arguments.items())
    return sorted(pair for a, r in pairs if len(a) == len(r) for pair in zip(a, r, strict=True))


def _places(pattern: re.Pattern[str], names: Sequence[str], shapes: Sequence[Shape]) -> dict[_Key, list[int]]:
    """The numbers of what is called alike, of one shape."""
    found: dict[_Key, list[int]] = {}
    for n, (name, shape) in enumerate(zip(names, shapes, strict=False)):
        match = pattern.fullmatch(name)
        if match is not None:
            found.setdefault((match["rest"], shape.plain), []).append(n)
    return found
