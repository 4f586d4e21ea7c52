"""Probes: the step notes the time behind each of its parts. Only steps compiled for profiling have them."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.compiler.emit.profile_steps import EVENTS, make_profile_step
from shardc.compiler.lower.lowered import Lowered, PredicateCheck, Step, leaf_steps
from shardc.compiler.profile import EVENT_WORDS, HEADER_WORDS, SITE_WORDS, ProfilePlan
from shardc.native.math.vector import I64, PTR, constant
from shardc.native.threads.clock import emit_nanoseconds

__all__ = ["Probe"]

_SYMBOL = "shardc_probe"


class Probe:
    """Numbers the sites of a lowered program and emits the calls that time them."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        steps = [s for s in leaf_steps(lowered.steps) if not isinstance(s, PredicateCheck)]
        self._numbers: dict[Step, int] = {s: n for n, s in enumerate(steps)}
        self._kernels: dict[Step, str] = {}
        self._offset = -(-lowered.plan.arena_bytes // 64) * 64

    def plan(self) -> ProfilePlan:
        """Where the record lies and what its sites are; complete once the step is emitted."""
        plan = self._lowered.plan
        sites = tuple(make_profile_step(step, plan, self._kernels.get(step, "")) for step in self._numbers)
        return ProfilePlan(sites, self._offset, EVENTS)

    def start(self, builder: ir.IRBuilder, arena: ir.Value) -> None:
        """The time of the first site begins here."""
        self._call(builder, arena, -1)

    def mark_end(self, builder: ir.IRBuilder, arena: ir.Value, step: Step, kernel: str = "") -> None:
        """``step`` ends here, and what comes next begins; ``kernel`` is the function that it called."""
        self._kernels[step] = kernel
        self._call(builder, arena, self._numbers[step])

    def _call(self, builder: ir.IRBuilder, arena: ir.Value, site: int) -> None:
        module = builder.module
        function = module.globals.get(_SYMBOL) or _emit(module, len(self._numbers))
        record = builder.gep(arena, [constant(I64, self._offset)], inbounds=True, source_etype=ir.IntType(8))
        builder.call(function, [record, constant(I64, site)])


def _emit(module: ir.Module, sites: int) -> ir.Function:
    """``void shardc_probe(ptr record, i64 site)``: adds the time since the last mark to ``site`` (-1: only marks)."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, I64]), _SYMBOL)
    function.linkage = "internal"
    function.attributes.add("noinline")
    record, site = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    word = _record_fields(b, record)
    now = emit_nanoseconds(b)
    last = b.load(word(constant(I64, 0)), typ=I64)
    b.store(now, word(constant(I64, 0)))
    timed, event, done = (function.append_basic_block(n) for n in ("timed", "event", "done"))
    b.cbranch(b.icmp_signed("<", site, constant(I64, 0)), done, timed)
    b.position_at_end(timed)
    place = b.add(b.mul(site, constant(I64, SITE_WORDS)), constant(I64, HEADER_WORDS))
    for n, amount in enumerate((constant(I64, 1), b.sub(now, last))):
        where = word(b.add(place, constant(I64, n)))
        b.store(b.add(b.load(where, typ=I64), amount), where)
    count = b.load(word(constant(I64, 1)), typ=I64)
    b.store(b.add(count, constant(I64, 1)), word(constant(I64, 1)))
    b.cbranch(b.icmp_signed("<", count, constant(I64, EVENTS)), event, done)
    b.position_at_end(event)
    first = b.add(b.mul(count, constant(I64, EVENT_WORDS)), constant(I64, HEADER_WORDS + SITE_WORDS * sites))
    for n, value in enumerate((site, last, now)):
        b.store(value, word(b.add(first, constant(I64, n))))
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()
    return function


def _record_fields(b: ir.IRBuilder, record: ir.Value) -> Callable[[ir.Value], ir.Value]:
    return lambda index: b.gep(record, [index], inbounds=True, source_etype=I64)
