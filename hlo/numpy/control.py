"""Loops and branches of a trace: their functions traced in scopes of their own, and closed into computations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError
from shardc.hlo.ir.build import make_instruction
from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.numpy.masked import Masked
from shardc.hlo.numpy.recorder import Scope, Trace
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import Tree, flatten, unflatten
from shardc.hlo.numpy.values import convert, lift, reshape
from shardc.hlo.units import kind_text

__all__ = ["leaves_of_state", "run_conditional", "run_while", "settle"]

_Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _TracedBody:
    """A loop's function, traced: what the state begins with, its scope with a parameter per leaf, the new leaves, and
    all that the function gave."""

    begin: list[Tracer]
    scope: Scope
    parameters: list[Tracer]
    after: list[Tracer]
    result: Any


def leaves_of_state(recorder: Trace, leaves: Sequence[Any], names: Iterable[str]) -> list[Tracer]:
    """Leaves of a state as traced values; `InputError` for what is neither an array nor a number."""
    made = []
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, Masked):
            leaf.refuse()
        if not isinstance(leaf, (Tracer, np.ndarray, np.generic, bool, int, float, complex)):
            raise InputError(
                f"{kind_text(leaf)} cannot be part of a loop's state or a branch's result",
                where=f"{name}, {recorder.place()}",
                fix="use arrays and numbers in dicts, lists and tuples; the function can read other objects of "
                "its scope",
            )
        made.append(lift(recorder, leaf))
    return made


def run_while(recorder: Trace, name: str, state: Any, going: _Function, body: _Function, labels: Sequence[str]) -> Any:
    """The ``while`` that begins with ``state``; ``labels`` are what messages call the state's leaves."""
    tree = flatten(state)[1]
    traced = _trace_body(recorder, name, state, body, labels, lambda r: r)
    with recorder.inner() as test:
        seen = _parameters(recorder, traced.begin)
        answer = lift(recorder, going(unflatten(tree, iter(seen))))
        if answer.size != 1:
            raise InputError(
                f"the condition of {name} is {answer.aval}, not one truth value",
                where=str(recorder.place()),
                fix="reduce it: np.any(...), np.all(...), a norm",
            )
        end = test.here(reshape(convert(answer, np.bool), ()).instruction)
        assert end is not None
    captured = _captured(test, traced.scope)
    with recorder.inner(traced.scope):
        root = recorder.emit("tuple", [*(r.instruction for r in traced.after), *captured])
    shape = tuple_shape(*(p.aval.plain for p in traced.begin), *(c.shape for c in captured))
    with recorder.call(name):
        made = recorder.emit(
            "while",
            [recorder.emit("tuple", [*(p.instruction for p in traced.begin), *captured])],
            shape,
            condition=_close(recorder, "condition", test, shape, _slots(test, len(seen), captured), end),
            body=_close(recorder, "body", traced.scope, shape, _slots(traced.scope, len(seen), captured), root),
        )
        return unflatten(tree, iter(_elements(recorder, made, traced.parameters)))


def run_conditional(pred: Tracer, true_fun: Any, false_fun: Any, operands: Sequence[Any]) -> Any:
    """The ``conditional`` of both functions, traced on the operands."""
    recorder = pred.recorder
    if pred.size != 1:
        raise InputError(
            f"the condition of cond is {pred.aval}, not one truth value",
            where=str(recorder.place()),
            fix="reduce it (np.any, np.all), or choose element by element: np.where(condition, a, b)",
        )
    leaves, tree = flatten(tuple(operands))
    scopes, results = [], []
    for function in (true_fun, false_fun):
        with recorder.inner() as scope:
            own = [Tracer(recorder, x.instruction, x.weak) if isinstance(x, Tracer) else x for x in leaves]
            results.append(flatten(function(*unflatten(tree, iter(own)))))
            scopes.append(scope)
    if results[0][1] != results[1][1]:
        raise InputError(
            f"the two functions of cond return different structures: {results[0][1]} and {results[1][1]}",
            where=str(recorder.place()),
            fix="return equal dicts, lists and tuples from both",
        )
    out = results[0][1]
    names = list(out.names("result"))
    ready = []
    for scope, (found, _) in zip(scopes, results, strict=True):
        with recorder.inner(scope):
            ready.append(leaves_of_state(recorder, found, names))
    wanted = [_common(recorder, a, b, name) for a, b, name in zip(*ready, names, strict=True)]
    called: list[Computation] = []
    taken: list[list[Instruction]] = []
    for word, scope, found in zip(("true", "false"), scopes, ready, strict=True):
        with recorder.inner(scope):
            given = [x if x.dtype == w.dtype else convert(x, w.dtype) for x, w in zip(found, wanted, strict=True)]
            root = recorder.emit("tuple", [x.instruction for x in given])
        taken.append(_captured(scope))
        shape = tuple_shape(*(v.shape for v in taken[-1]))
        called.append(_close(recorder, f"{word}_branch", scope, shape, _slots(scope, 0, taken[-1]), root))
    with recorder.call("cond"):
        truth = reshape(convert(pred, np.bool), ()).instruction
        made = recorder.emit(
            "conditional",
            [truth, *(recorder.emit("tuple", values) for values in taken)],
            called[0].root.shape,
            true_computation=called[0],
            false_computation=called[1],
        )
        return unflatten(out, iter(_elements(recorder, made, wanted)))


def settle(
    recorder: Trace, name: str, state: Any, body: _Function, labels: Sequence[str], carry: _Function
) -> tuple[Any, Any]:
    """The state as a loop carries it, numbers with the types that ``body`` makes them, and what ``body`` gives, of
    which ``carry`` is the next state. Nothing of it stays in the program."""
    traced = _trace_body(recorder, name, state, body, labels, carry)
    return unflatten(flatten(state)[1], iter(traced.begin)), traced.result


def _trace_body(
    recorder: Trace, name: str, state: Any, body: _Function, labels: Sequence[str], carry: _Function
) -> _TracedBody:
    """A loop's function in a scope of its own; Python numbers in the state become what the function makes of them."""
    leaves, tree = flatten(state)
    begin = leaves_of_state(recorder, leaves, labels)
    while True:
        with recorder.inner() as scope:
            parameters = _parameters(recorder, begin)
            result = body(unflatten(tree, iter(parameters)))
            found, made = flatten(carry(result))
            if made != tree:
                raise _other_structure(recorder, name, tree, made)
            after = leaves_of_state(recorder, found, labels)
            changed = [_carried(recorder, name, *row) for row in zip(begin, after, labels, strict=True)]
            if all(c is b for c, b in zip(changed, begin, strict=True)):
                after = [convert(a, b.dtype) for a, b in zip(after, begin, strict=True)]
                return _TracedBody(begin, scope, parameters, after, result)
        begin = [b if c is b else _typed(b, c) for b, c in zip(begin, changed, strict=True)]


def _carried(recorder: Trace, name: str, before: Tracer, after: Tracer, label: str) -> Tracer:
    """``before`` where the loop can go on with ``after``, else ``after``, whose type a number is to begin with."""
    if before.shape != after.shape:
        raise InputError(
            f"{name} begins with {label} of shape {before.shape}, but its function returns shape {after.shape}",
            where=str(recorder.place()),
            fix="carry an array of the final shape and write into it (x[i] = ...), let scan collect what is new in "
            "each step, or broadcast the initial state",
        )
    if before.weak is not None and after.weak is None:
        return after if not before.shape else before
    if before.dtype == after.dtype:
        return before
    if after.weak is not None and (before.weak is None) and np.result_type(before.dtype, after.weak()) == before.dtype:
        return before
    if before.weak is not None:
        return after
    raise InputError(
        f"{name} begins with {label} of type {before.dtype}, but its function returns {after.dtype}",
        where=str(recorder.place()),
        fix=f"begin with {after.dtype} ({label}.astype(np.{after.dtype})), or return .astype(np.{before.dtype})",
    )


def _typed(before: Tracer, after: Tracer) -> Tracer:
    """What a Python number begins with, in the type that it has after a step."""
    made = convert(before, after.dtype)
    return Tracer(before.recorder, made.instruction, after.weak)


def _common(recorder: Trace, a: Tracer, b: Tracer, name: str) -> Tracer:
    """The one of two branches' results whose type both can have."""
    if a.shape == b.shape:
        if a.dtype == b.dtype:
            return b if a.weak else a
        for strong, weak in ((a, b), (b, a)):
            if (
                weak.weak
                and np.result_type(weak.weak(), strong.weak() if strong.weak else strong.dtype) == strong.dtype
            ):
                return strong
    raise InputError(
        f"the two functions of cond return {name} as {a.aval} and as {b.aval}",
        where=str(recorder.place()),
        fix="return equal shapes and element types from both: np.broadcast_to(x, shape), x.astype(dtype)",
    )


def _other_structure(recorder: Trace, name: str, before: Tree, after: Tree) -> InputError:
    return InputError(
        f"{name} begins with the state {before}, but its function returns {after}",
        where=str(recorder.place()),
        fix="return the same dicts, lists and tuples that it was given",
    )


def _parameters(recorder: Trace, begin: Sequence[Tracer]) -> list[Tracer]:
    """The leaves of the state as the present scope sees them."""
    made = []
    for b in begin:
        stand_in = make_instruction("parameter", shape=b.aval.plain, name=recorder.unique_name("carried"), index=0)
        made.append(Tracer(recorder, recorder.scope.add(stand_in), b.weak))
    return made


def _captured(*scopes: Scope) -> list[Instruction]:
    """What the scopes use of those around them, each once; constants are their own."""
    return list(dict.fromkeys(v for s in scopes for v, inside in s.captured.items() if inside.opcode != "constant"))


def _slots(scope: Scope, count: int, captured: Sequence[Instruction]) -> dict[Instruction, int]:
    """Elements of the only parameter's tuple by what stands for them in the scope, which begins with ``count`` leaves
    of the state."""
    values = [*scope.instructions[:count], *(scope.captured.get(v) for v in captured)]
    return {v: k for k, v in enumerate(values) if v is not None}


def _close(
    recorder: Trace, name: str, scope: Scope, shape: Shape, slots: Mapping[Instruction, int], root: Instruction
) -> Computation:
    """The scope as a computation of one parameter, a tuple."""
    whole = make_instruction("parameter", shape=shape, name=recorder.unique_name("state"), index=0)
    needed, new = {*topological([root])}, {}
    for i in scope.instructions:
        if i not in needed:
            continue
        if i in slots:
            new[i] = make_instruction("get-tuple-element", whole, name=i.name, metadata=i.metadata, index=slots[i])
        else:
            operands = tuple(new[o] for o in i.operands)
            new[i] = i if operands == i.operands else i.replace(operands=operands)
    recorder.constraints = [(new.get(i, i), spec, where) for i, spec, where in recorder.constraints]
    return Computation(recorder.unique_name(name), [whole, *new.values()], new[root])


def _elements(recorder: Trace, made: Instruction, like: Sequence[Tracer]) -> list[Tracer]:
    return [Tracer(recorder, recorder.emit("get-tuple-element", [made], index=k), x.weak) for k, x in enumerate(like)]
