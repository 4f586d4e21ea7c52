"""Loops with a known number of iterations in a per-device program."""

from __future__ import annotations

from collections.abc import Callable

from shardc.costs.kernels.trips import expect_trips
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter

__all__ = ["Values", "repeat"]

#: Instructions with the values of several arrays.
Values = list[Instruction]


def repeat(
    em: Emitter,
    trips: int | Instruction,
    carried: Values,
    fixed: Values,
    step: Callable[[Emitter, Instruction, Values, Values], Values],
    *,
    name: str = "sort",
    go_on: Callable[[Emitter, Values], Instruction] | None = None,
    likely: int = 0,
) -> Values:
    """A loop: ``step(em, number, carried, fixed)`` gives what is carried on; its computations begin with ``name``.

    It ends earlier where ``go_on(em, carried)`` is false, after ``likely`` iterations as far as costs are concerned.
    """
    start = [em.index(0), em.index(trips) if isinstance(trips, int) else trips, *carried, *fixed]
    state = tuple_shape(*(x.shape.plain for x in start))

    def inside() -> tuple[Emitter, Values]:
        inner = Emitter(em.table, em.reducers, em.names)
        inner.metadata, inner.origin = em.metadata, em.origin
        p = inner.add("parameter", state, index=0)
        return inner, [inner.add("get-tuple-element", s, p, index=k) for k, s in enumerate(state.elements)]

    body, (number, limit, *given) = inside()
    made = step(body, number, given[: len(carried)], given[len(carried) :])
    root = body.add("tuple", state, body.plus(number, 1), limit, *made, *given[len(carried) :])
    test, (now, end, *others) = inside()
    bound = test.index(trips) if isinstance(trips, int) else end
    less = test.add("compare", array_shape("pred"), now, bound, direction="LT")
    if go_on is not None:
        less = test.add("and", less.shape, less, go_on(test, others[: len(carried)]))
    attrs = {"backend_config": expect_trips(likely)} if likely else {}
    loop = em.add(
        "while",
        state,
        em.add("tuple", state, *start),
        condition=Computation(em.names.fresh(f"{name}_condition"), test.instructions, less),
        body=Computation(em.names.fresh(f"{name}_body"), body.instructions, root),
        **attrs,
    )
    return [em.add("get-tuple-element", x.shape.plain, loop, index=k + 2) for k, x in enumerate(carried)]
