"""`trace_call`: one call of NumPy, traced on its own: what it gives, which of its arguments it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.types import Shape
from shardc.hlo.numpy.functions.dispatch import PROTOCOLS
from shardc.hlo.numpy.masked import Masked
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.trace import make_parameter
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import Tree, flatten
from shardc.hlo.units import kind_text

__all__ = ["CallResult", "Number", "TracedCall", "trace_call"]


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number of ``kind`` (int, float, complex) that a call is given: its type adapts to arrays."""

    kind: type


@dataclass(frozen=True, slots=True)
class CallResult:
    """One leaf of what a call gives: result ``number`` of the module, argument ``number`` itself, one of the views
    that it was given, a new view of the only argument, or a ``value`` that is known without running anything."""

    what: str
    number: int = 0
    shape: Shape | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call as a module, whose results are the computed ones and then the new values of the arguments ``changed``.

    ``module`` is None where nothing has to run.
    """

    module: Module | None
    tree: Tree
    results: tuple[CallResult, ...]
    changed: tuple[int, ...]


def trace_call(name: str, run: Callable[[Sequence[Tracer], list[Tracer]], Any], leaves: Sequence[Any]) -> TracedCall:
    """Trace ``run(tracers, views)``, which makes the call on a tracer per leaf, and notes the views that it makes of
    them first. Leaves have ``shape`` and ``dtype``, or are a `Number`. Raises what NumPy raises,
    and `UnsupportedError`.
    """
    recorder = Trace(name, PROTOCOLS)
    parameters = [
        make_parameter(recorder, n, leaf.kind() if isinstance(leaf, Number) else leaf, f"arg{n}")
        for n, leaf in enumerate(leaves)
    ]
    before = [p.instruction for p in parameters]
    views: list[Tracer] = []
    found, tree = flatten(run(parameters, views))
    computed = [_result(leaf, parameters, views) for leaf in found]
    changed = tuple(n for n, p in enumerate(parameters) if p.instruction is not before[n])
    values = [leaf.instruction for leaf, r in zip(found, computed, strict=True) if r.what == "result"]
    numbers = iter(range(len(values)))
    results = tuple(CallResult("result", next(numbers)) if r.what == "result" else r for r in computed)
    if not values and not changed:
        return TracedCall(None, tree, results, ())
    values += [parameters[n].instruction for n in changed]
    entry = recorder.build(recorder.emit("tuple", values))
    recorder.open = False
    names = tuple(f"arg{n}" for n in range(len(leaves)))
    module = make_module(name, entry, arg_names=names, result_names=("",) * len(values))
    return TracedCall(module, tree, results, changed)


def _result(leaf: Any, parameters: Sequence[Tracer], views: Sequence[Tracer]) -> CallResult:
    if isinstance(leaf, Masked):
        leaf.refuse()
    if not isinstance(leaf, Tracer):
        if callable(leaf) and not isinstance(leaf, type):
            raise UnsupportedError(f"the function returned {kind_text(leaf)}, not an array")
        return CallResult("value", value=leaf)
    for what, known in (("argument", parameters), ("given view", views)):
        number = next((n for n, k in enumerate(known) if k is leaf), None)
        if number is not None:
            return CallResult(what, number)
    # What depends on other arguments, too (positions in an array of their own), is a copy.
    is_view = len(parameters) == 1 and leaf.base is parameters[0]
    return CallResult("view", 0, leaf.aval) if is_view else CallResult("result")
