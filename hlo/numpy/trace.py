"""`trace_function`: runs a NumPy function on traced values, and makes a module of what it did."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.make import keep_reachable
from shardc.hlo.ir.types import Shape, array_shape
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.numpy.functions.dispatch import PROTOCOLS
from shardc.hlo.numpy.masked import Masked
from shardc.hlo.numpy.purity import Generators, check_numbers, check_repeats, translate_errors
from shardc.hlo.numpy.recorder import Scope, Trace
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import Tree, flatten, streams_of, unflatten
from shardc.hlo.numpy.values import emit, hlo_dtype, lift
from shardc.hlo.transforms.roll_loops import RollLoops
from shardc.hlo.units import arguments_text, kind_text

__all__ = ["RequestedSharding", "ShapeDtype", "TracedFunction", "constrain", "make_parameter", "trace_function"]

#: Characters that a message spends on a structure.
_WIDTH = 300


@dataclass(frozen=True, slots=True)
class ShapeDtype:
    """The shape and element type of an argument that `trace` needs; ``sharding`` is an annotation: `P`,
    or a pair of a mesh and a `P`. Raises `InputError` for what is no shape or no element type.

    >>> shardc.ShapeDtype((8, 16), "float32", P("data")).shape
    (8, 16)
    """

    shape: tuple[int, ...]
    dtype: Any = "float64"
    sharding: Any = None

    def __post_init__(self) -> None:
        try:
            dims = (self.shape,) if isinstance(self.shape, int) else tuple(operator.index(n) for n in self.shape)
        except TypeError:
            dims = (-1,)
        if any(n < 0 for n in dims):
            raise InputError(f"{self.shape!r} is not a shape", where="ShapeDtype", fix="give sizes such as (8, 16)")
        object.__setattr__(self, "shape", dims)
        try:
            object.__setattr__(self, "dtype", np.dtype(self.dtype))
        except TypeError as e:
            fix = 'give a type of NumPy, such as "float32"'
            raise InputError(f"{self.dtype!r} is not an element type: {e}", where="ShapeDtype", fix=fix) from None


@dataclass(frozen=True, slots=True)
class RequestedSharding:
    """A sharding that the user asked for: of an instruction (a constraint or a parameter), at a place in the source."""

    instruction: Instruction
    spec: Any
    where: str


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A module, and how its flat parameters and results belong to the function's nested arguments and results."""

    module: Module
    in_tree: Tree
    out_tree: Tree
    requested: tuple[RequestedSharding, ...] = ()
    #: How often each random stream among the arguments is drawn from.
    draws: tuple[int, ...] = ()

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The module's parameters from the function's arguments; `InputError` for another structure. Random streams go
        on behind what the function draws."""
        leaves, tree = flatten((list(args), dict(kwargs or {})))
        if tree != self.in_tree:
            raise self._differs(tree)
        for stream, draws in zip(streams_of([list(args), dict(kwargs or {})]), self.draws, strict=True):
            stream.skip(draws)
        return leaves

    def _differs(self, given: Tree) -> InputError:
        """The error for arguments of another structure: by their number, or by the first that differs."""
        (positional, _), (theirs, _) = self.in_tree.children, given.children
        starts = [sum(c.count for c in positional.children[:k]) for k in range(len(positional.children))]
        labels = [re.split(r"[.\[]", name)[0] for name in self.module.arg_names]
        names = [
            labels[s] if c.count and s < len(labels) else f"argument {k}"
            for k, (s, c) in enumerate(zip(starts, positional.children, strict=True))
        ]
        if len(positional.children) != len(theirs.children):
            (_, ours), (_, named) = self.in_tree.children, given.children
            what = arguments_text(self.module.name, (names, ours.keys), len(theirs.children), named.keys)
        else:
            pairs = zip(names, positional.children, theirs.children, strict=True)
            found = next((text for name, a, b in pairs if (text := a.difference(b, name))), "")
            what = found or self.in_tree.children[1].difference(given.children[1], "the arguments by name")
        shapes = ", ".join(f"{n} {p.shape}" for n, p in zip(self.module.arg_names, self.module.parameters, strict=True))
        return InputError(
            what,
            where=f"call of the compiled function {self.module.name}",
            fix=f"pass what it was traced with: {shorten(shapes, _WIDTH, placeholder=' ...')}",
        )

    def unflatten(self, results: Sequence[Any]) -> Any:
        """The function's result from the module's flattened results."""
        return unflatten(self.out_tree, iter(results))


def trace_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    names: Sequence[str] = (),
) -> TracedFunction:
    """Run ``function`` on traced values for ``args`` and make a module.

    A leaf of the arguments is whatever has ``shape`` and ``dtype`` (`ShapeDtype`, arrays), or a Python number, whose
    type then adapts to arrays as NumPy's scalars do. ``names`` are the parameters' names, for the module's. Raises
    `InputError` for other leaves and results that are no arrays, `UnsupportedError` from inside the function.

    The function is run twice. What differs between the runs (random numbers, counters, the time) would be a constant
    of the program, hence an `InputError`; random numbers that are the same in both are one, with a warning.
    """
    named = dict(kwargs or {})
    generators = Generators()
    recorded = _record(function, args, named, names)
    made = _trace_of(recorded)
    with generators.locate():
        again = _record(function, args, named, names, recorded.recorder.scope.instructions)
    if again.root is not recorded.root:
        check_repeats(made.module.entry, again.recorder.build(again.root))
    check_numbers(recorded.recorder, again.recorder)
    generators.warn()
    return _rolled(made)


def _rolled(made: TracedFunction) -> TracedFunction:
    """The function with equal iterations of its Python loops as loops."""
    specs = {r.instruction: repr(r.spec) for r in made.requested}
    entry, moved = RollLoops().roll(made.module.entry, specs.get)
    requested = {(i := moved.get(r.instruction, r.instruction)): replace(r, instruction=i) for r in made.requested}
    return replace(made, module=keep_reachable(made.module, entry), requested=tuple(requested.values()))


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What one run of a function recorded, up to its root, and the labels of its arguments."""

    recorder: Trace
    root: Instruction
    labels: list[str]
    in_tree: Tree
    out_tree: Tree
    requested: list[RequestedSharding]
    draws: tuple[int, ...]


def _record(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: dict[str, Any],
    names: Sequence[str],
    before: Sequence[Instruction] = (),
) -> _Recorded:
    """Run the function once; ``before`` is what it recorded in an earlier run."""
    leaves, in_tree = flatten((list(args), named))
    name = getattr(function, "__name__", "function").strip("<>")
    recorder = Trace(name, PROTOCOLS, Scope(before=before))
    labels = _labels(in_tree, names)
    tracers, requested = [], []
    for index, (leaf, label) in enumerate(zip(leaves, labels, strict=True)):
        tracers.append(make_parameter(recorder, index, leaf, label))
        if getattr(leaf, "sharding", None) is not None:
            where = f"ShapeDtype of {label}" if isinstance(leaf, ShapeDtype) else f"argument {label}"
            requested.append(RequestedSharding(tracers[-1].instruction, leaf.sharding, where))
    positional, keywords = unflatten(in_tree, iter(tracers))
    with translate_errors(), recorder.running():
        result = function(*positional, **keywords)
    outputs, out_tree = flatten(result)
    values = [_result(recorder, leaf, label) for leaf, label in zip(outputs, out_tree.names("result"), strict=True)]
    if not values:
        raise InputError(
            f"the function {recorder.name} returns no array",
            fix="return the results: in-place changes of arguments stay inside the program",
        )
    root = recorder.emit("tuple", values)
    recorder.open = False
    draws = tuple(s.drawn for s in streams_of([positional, keywords]))
    return _Recorded(recorder, root, labels, in_tree, out_tree, requested, draws)


def _trace_of(recorded: _Recorded) -> TracedFunction:
    recorder, out_tree = recorded.recorder, recorded.out_tree
    module = make_module(
        recorder.name,
        recorder.build(recorded.root),
        arg_names=tuple(recorded.labels),
        result_names=tuple(out_tree.names("result")),
        uneven_interface=True,
    )
    kept = {*module.instructions()}
    inside = [RequestedSharding(i, spec, where) for i, spec, where in recorder.constraints if i in kept]
    return TracedFunction(module, recorded.in_tree, out_tree, (*recorded.requested, *inside), recorded.draws)


def constrain(x: Tracer, spec: Any) -> Tracer:
    """``x`` through a sharding constraint, whose sharding is filled in when the mesh is known."""
    recorder = x.recorder
    with recorder.call("shard"):
        made = emit("custom-call", x, shape=x.aval.plain, custom_call_target="Sharding")
        recorder.constraints.append((made.instruction, spec, str(recorder.place())))
    return made


def _labels(tree: Tree, names: Sequence[str]) -> list[str]:
    """Names of all leaves: ``x``, ``state['w']``."""
    positional, keywords = tree.children
    known = [*names, *(f"arg{k}" for k in range(len(names), len(positional.children)))]
    labels: list[str] = []
    for name, child in zip(known, positional.children, strict=False):
        labels += child.names(name)
    for name, child in zip(keywords.keys, keywords.children, strict=True):
        labels += child.names(name)
    return labels


def make_parameter(recorder: Trace, index: int, leaf: Any, label: str) -> Tracer:
    """The traced value of parameter ``index``: of a leaf's shape and type, or of a Python number's."""
    weak = next((t for t in (int, float, complex) if type(leaf) is t), None)
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        leaf = np.asarray(leaf)
    refuse_masked(leaf, f"argument {label}")
    dims, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if dims is None or dtype is None:
        raise InputError(
            f"{kind_text(leaf)} has no shape and element type",
            where=f"argument {label}",
            fix='pass an array or shardc.ShapeDtype((8, 16), "float32"); bind other arguments with functools.partial',
        )
    shape: Shape = array_shape(hlo_dtype(dtype, recorder), *(int(n) for n in dims))
    return Tracer(recorder, recorder.parameter(index, shape, label), weak)


def _result(recorder: Trace, leaf: Any, label: str) -> Instruction:
    if isinstance(leaf, Tracer) and leaf.recorder is not recorder:
        raise InputError(f"{label} comes from another traced function", fix="pass it in as an argument")
    if isinstance(leaf, Masked):
        leaf.refuse()
    if not isinstance(leaf, (Tracer, np.ndarray, np.generic, bool, int, float, complex)):
        raise InputError(
            f"the function returns {kind_text(leaf)}",
            where=label,
            fix="return arrays, in dicts, lists and tuples",
        )
    return lift(recorder, leaf).instruction
