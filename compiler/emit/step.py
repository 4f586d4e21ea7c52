"""The step function: kernels called in order, loops and branches as blocks, suspension at collectives.

All values live in memory, so resuming is a jump: the function stores the number of the collective it stops at in the
arena's header, and enters through a switch on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from shardc.collectives.call.call import BufferRef
from shardc.compiler.emit.kernels import EmitKernel, KernelSet, Parts
from shardc.compiler.executable import DONE, HOST, PASSED_BY, WAIT, encode_failed_check
from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    Buffer,
    BufferCopy,
    Collective,
    KernelStep,
    Lowered,
    PredicateCheck,
    Step,
    WhileStep,
)
from shardc.native.math.vector import I8, I32, I64, PTR

if TYPE_CHECKING:
    from shardc.compiler.emit.probe import Probe

__all__ = ["SYMBOL", "emit_step"]

#: Name of the entry point in the object.
SYMBOL = "shardc_step"


def emit_step(
    module: ir.Module,
    lowered: Lowered,
    emit_kernel: EmitKernel,
    name: str = SYMBOL,
    probe: Probe | None = None,
    parts: Parts | None = None,
    *,
    counted: bool = False,
) -> ir.Function:
    """Add the step function of ``lowered`` and its kernels to ``module``; the ABI is in `compiler/executable.py`.

    With a ``probe`` the step notes the time behind each kernel, copy and collective. With ``parts``, of which
    ``module`` is the first, kernels may be in others. A ``counted`` step has as its constants the number of elements
    that there are of each array that is no scalar: an i64, which its kernels, counted ones, are told.
    """
    kernels = KernelSet(module, emit_kernel, "" if name == SYMBOL else f"{name}.", parts)
    return _StepEmitter(module, lowered, kernels, name, probe, counted).emit()


class _StepEmitter:
    def __init__(
        self,
        module: ir.Module,
        lowered: Lowered,
        kernels: KernelSet,
        name: str,
        probe: Probe | None,
        counted: bool,
    ) -> None:
        self._lowered = lowered
        self._probe = probe
        self._kernels = kernels
        self._function = ir.Function(module, ir.FunctionType(I32, [PTR, PTR, PTR, PTR, I32]), name)
        for attribute in ("noinline", "optnone"):  # it only calls: optimising it would cost seconds and gain nothing
            self._function.attributes.add(attribute)
        self._arena, self._arguments, self._results, self._constants, self._device = self._function.args
        move = ir.FunctionType(PTR, [PTR, PTR, I64])
        self._memmove = module.globals.get("memmove") or ir.Function(module, move, "memmove")
        self._builder = ir.IRBuilder(self._function.append_basic_block("entry"))
        self._count = self._builder.load(self._constants, typ=I64) if counted else None
        self._resume: list[tuple[int, ir.Block]] = []
        self._hosts = {step: number for number, step in enumerate(lowered.hosts)}

    def emit(self) -> ir.Function:
        b = self._builder
        point = b.load(self._arena, typ=I32)
        start = self._function.append_basic_block("start")
        switch = b.switch(point, start)
        b.position_at_end(start)
        if self._probe is not None:
            self._probe.start(b, self._arena)
        self._block(self._lowered.steps)
        self._leave(0, DONE)
        for value, block in self._resume:
            switch.add_case(ir.Constant(I32, value), block)
        return self._function

    def _leave(self, resume_point: int, answer: int) -> None:
        """Return ``answer``; the next call goes on at ``resume_point`` (0: the beginning)."""
        self._builder.store(ir.Constant(I32, resume_point), self._arena)
        self._builder.ret(ir.Constant(I32, answer))

    def _block(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, KernelStep | BufferCopy):
                self._once(step)
            elif isinstance(step, Collective):
                self._stop(step, step.index)
            elif isinstance(step, AwaitStep):
                if isinstance(step.started, Collective):  # a move was done where it started
                    self._stop(step, step.started.index | WAIT)
            elif isinstance(step, PredicateCheck):
                self._check(step)
            elif isinstance(step, WhileStep):
                self._loop(step)
            else:
                self._branch(step)

    def _address(self, buffer: Buffer) -> ir.Value:
        ref = self._lowered.plan.ref(buffer)
        return self._offset(self._base(ref), ref.offset)

    def _base(self, ref: BufferRef) -> ir.Value:
        if ref.space == "arena":
            return self._arena
        if ref.space == "constant":
            return self._constants
        table = self._arguments if ref.space == "argument" else self._results
        slot = self._builder.gep(table, [ir.Constant(I64, ref.index)], inbounds=True, source_etype=PTR)
        return self._builder.load(slot, typ=PTR)

    def _offset(self, base: ir.Value, offset: int) -> ir.Value:
        if not offset:
            return base
        return self._builder.gep(base, [ir.Constant(I64, offset)], inbounds=True, source_etype=I8)

    def _once(self, step: KernelStep | BufferCopy) -> None:
        """Do ``step``, unless another device of the process does it for this one."""
        number = self._lowered.once.steps.get(step)
        end = None
        if number is not None:
            do, end = (self._function.append_basic_block(part) for part in ("once", "past"))
            mask = self._builder.load(self._offset(self._arena, PASSED_BY), typ=I64)
            bit = self._builder.and_(mask, ir.Constant(I64, 1 << number))
            self._builder.cbranch(self._builder.icmp_unsigned("==", bit, ir.Constant(I64, 0)), do, end)
            self._builder.position_at_end(do)
        if isinstance(step, KernelStep):
            self._kernel(step)
        else:
            self._copy(step)
        if end is not None:
            self._builder.branch(end)
            self._builder.position_at_end(end)

    def _kernel(self, step: KernelStep) -> None:
        if step.instruction.opcode in ("partition-id", "replica-id"):
            self._identity(step)
            return
        if step in self._hosts:
            self._stop(step, self._hosts[step] | HOST)
            return
        function = self._kernels.function(step.instruction)
        places = [self._address(b) for b in (*step.operands, *step.results)]
        count = [] if self._count is None else [self._count]
        self._builder.call(function, [*places, *count, self._device])
        self._passed(step, function.name)

    def _passed(self, step: Step, kernel: str = "") -> None:
        """Behind a part of the step, on the way on."""
        if self._probe is not None:
            self._probe.mark_end(self._builder, self._arena, step, kernel)

    def _identity(self, step: KernelStep) -> None:
        """Devices count partitions fastest: device = replica * partitions + partition."""
        partitions = ir.Constant(I32, self._lowered.module.num_partitions)
        partition = step.instruction.opcode == "partition-id"
        operation = self._builder.urem if partition else self._builder.udiv
        self._builder.store(operation(self._device, partitions), self._address(step.results[0]))
        self._passed(step)

    def _copy(self, step: BufferCopy) -> None:
        plan = self._lowered.plan
        if plan.ref(step.source) == plan.ref(step.target) or not step.target.nbytes:
            return
        size = ir.Constant(I64, step.target.nbytes)
        if self._count is not None and step.target.shape.rank:
            size = self._builder.mul(self._count, ir.Constant(I64, step.target.shape.dtype.nbytes))
        self._builder.call(self._memmove, [self._address(step.target), self._address(step.source), size])
        self._passed(step, "memmove")

    def _stop(self, step: Collective | AwaitStep | KernelStep, answer: int) -> None:
        """Return ``answer``; the next call goes on behind it, at the resume point ``answer + 1``."""
        after = self._function.append_basic_block(f"after_{answer}")
        self._leave(answer + 1, answer)
        self._resume.append((answer + 1, after))
        self._builder.position_at_end(after)
        self._passed(step)

    def _check(self, step: PredicateCheck) -> None:
        failed, passed = (self._function.append_basic_block(f"check_{part}") for part in ("failed", "passed"))
        self._builder.cbranch(self._truth(step.predicate), passed, failed)
        self._builder.position_at_end(failed)
        self._leave(0, encode_failed_check(step.index))
        self._builder.position_at_end(passed)

    def _loop(self, step: WhileStep) -> None:
        blocks = [self._function.append_basic_block(f"while_{part}") for part in ("condition", "body", "end")]
        condition, body, end = blocks
        self._builder.branch(condition)
        self._builder.position_at_end(condition)
        self._block(step.condition)
        self._builder.cbranch(self._truth(step.predicate), body, end)
        self._builder.position_at_end(body)
        self._block(step.body)
        self._builder.branch(condition)
        self._builder.position_at_end(end)

    def _truth(self, predicate: Buffer) -> ir.Value:
        byte = self._builder.load(self._address(predicate), typ=I8)
        return self._builder.icmp_unsigned("!=", byte, ir.Constant(I8, 0))

    def _branch(self, step: BranchStep) -> None:
        blocks = [self._function.append_basic_block(f"branch_{n}") for n in range(len(step.branches))]
        end = self._function.append_basic_block("branch_end")
        if step.selector.shape.dtype.kind == "pred":
            self._builder.cbranch(self._truth(step.selector), blocks[0], blocks[1])
        else:
            index = self._builder.load(self._address(step.selector), typ=I32)
            switch = self._builder.switch(index, blocks[-1])
            for n, block in enumerate(blocks[:-1]):
                switch.add_case(ir.Constant(I32, n), block)
        for block, steps in zip(blocks, step.branches, strict=True):
            self._builder.position_at_end(block)
            self._block(steps)
            self._builder.branch(end)
        self._builder.position_at_end(end)
