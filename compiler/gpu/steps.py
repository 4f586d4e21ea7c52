"""From lowered steps to what the launcher walks: every kernel made, every buffer's place resolved."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.collectives.call.call import BufferRef
from shardc.compiler.gpu.kernel_set import GpuKernels, HostSymbolCall
from shardc.compiler.gpu.launches import Fill, LaunchArray, Launches
from shardc.compiler.gpu.places import ArrayPlaces, KernelPlaces
from shardc.compiler.gpu.products.library_product import LibraryProduct
from shardc.compiler.gpu_program import (
    AwaitCollective,
    CheckStep,
    ChoiceStep,
    CopyStep,
    FillStep,
    GpuStep,
    HostStep,
    LaunchStep,
    ProductStep,
    RepeatStep,
    StartCollective,
)
from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    BufferCopy,
    Collective,
    KernelStep,
    Lowered,
    PredicateCheck,
    Step,
    WhileStep,
)
from shardc.costs.kernels.trips import trip_count
from shardc.hlo.errors import UnsupportedError

__all__ = ["LIBRARY_BYTES", "GpuSteps"]

#: Memory that a library's product may work in, in bytes.
LIBRARY_BYTES = 32 << 20
_ALIGNMENT = 256


class GpuSteps:
    """The steps of ``lowered``. Kernels follow one another, so all have their scratch memory in one place: behind the
    arena, which then has ``arena_bytes``. Raises `UnsupportedError` where some of it is to lie in host memory."""

    def __init__(self, lowered: Lowered, kernels: GpuKernels) -> None:
        if any(b.host for b in lowered.plan.placements):
            raise UnsupportedError(
                "programs for GPUs cannot move values to or from host memory (pinned_host) yet",
                where=lowered.module.name,
                fix='omit the memory kinds, run the program on CPUs (compile("cpu")), or simulate it',
            )
        self._kernels = kernels
        self._places = ArrayPlaces(lowered)
        self._scratch = -(-lowered.plan.arena_bytes // _ALIGNMENT) * _ALIGNMENT
        self._scratch_bytes = 0
        #: What leaf steps are made from, once each, and which of these each leaf step belongs to (-1: none).
        self.timed: list[tuple[Step, str]] = []
        self.sites: list[int] = []
        self.steps = self._block(lowered.steps)
        self.arena_bytes = self._scratch + self._scratch_bytes if self._scratch_bytes else lowered.plan.arena_bytes

    def _block(self, steps: Sequence[Step]) -> tuple[GpuStep, ...]:
        return tuple(made for step in steps for made in self._numbered(step))

    def _numbered(self, step: Step) -> Sequence[GpuStep]:
        made = self._made(step)
        if not isinstance(step, WhileStep | BranchStep) and made:
            timed = not isinstance(step, PredicateCheck)
            self.sites += [len(self.timed) if timed else -1] * len(made)
            if timed:
                self.timed.append((step, _code_of(made)))
        return made

    def _made(self, step: Step) -> Sequence[GpuStep]:
        ref = self._places.ref
        if isinstance(step, KernelStep):
            return self._kernel(step)
        if isinstance(step, BufferCopy):
            source, target = ref(step.source), ref(step.target)
            return () if source == target or not target.nbytes else (CopyStep(source, target),)
        if isinstance(step, Collective):
            return (StartCollective(step.index),)
        if isinstance(step, AwaitStep):
            started = step.started
            return (AwaitCollective(started.index),) if isinstance(started, Collective) else ()
        if isinstance(step, PredicateCheck):
            return (CheckStep(step.index, ref(step.predicate)),)
        if isinstance(step, WhileStep):
            condition, body = self._block(step.condition), self._block(step.body)
            return (RepeatStep(condition, ref(step.predicate), body, trip_count(step.instruction)),)
        return self._choice(step)

    def _choice(self, step: BranchStep) -> Sequence[GpuStep]:
        logical = step.selector.shape.dtype.kind == "pred"
        return (ChoiceStep(self._places.ref(step.selector), logical, tuple(map(self._block, step.branches))),)

    def _kernel(self, step: KernelStep) -> list[GpuStep]:
        """Nothing for a kernel without elements to compute."""
        if not any(r.nbytes for r in step.results):
            return []
        places = self._places.of(step)
        name = step.instruction.name
        made = self._kernels.make(step.instruction, places.aliased)
        out: list[GpuStep] = [] if places.copied is None else [CopyStep(*places.copied)]
        if isinstance(made, HostSymbolCall):
            out.append(HostStep(made.symbol, places.operands, places.results, name))
        elif isinstance(made, LibraryProduct):
            out.append(self._product(made, places, name))
        else:
            out += self._launches(made, places, name)
        return out

    def _launches(self, made: Launches, places: KernelPlaces, name: str) -> list[GpuStep]:
        def place(argument: LaunchArray) -> BufferRef:
            if argument.role == "scratch":
                return self._scratch_ref(argument.index, made.scratch_bytes - argument.index)
            return (places.operands if argument.role == "operand" else places.results)[argument.index]

        out: list[GpuStep] = []
        for step in made.steps:
            if isinstance(step, Fill):
                ref = place(step.place)
                out.append(FillStep(BufferRef(ref.space, ref.index, ref.offset, step.nbytes), step.byte))
            else:
                out.append(LaunchStep(step.symbol, step.shape, tuple(map(place, step.arguments)), name))
        return out

    def _product(self, made: LibraryProduct, places: KernelPlaces, name: str) -> ProductStep:
        return ProductStep(
            product=made.product,
            a=places.operands[made.a],
            b=places.operands[made.b],
            bias=None if made.bias is None else places.operands[made.bias],
            d=places.results[0],
            workspace=self._scratch_ref(0, LIBRARY_BYTES),
            name=name,
        )

    def _scratch_ref(self, offset: int, nbytes: int) -> BufferRef:
        self._scratch_bytes = max(self._scratch_bytes, offset + nbytes)
        return BufferRef("arena", 0, self._scratch + offset, nbytes)


def _code_of(steps: Sequence[GpuStep]) -> str:
    """What a profile calls the code of ``steps``: their first kernel, or the library."""
    for step in steps:
        if isinstance(step, LaunchStep | HostStep):
            return step.symbol
        if isinstance(step, ProductStep):
            return "cublasLt"
    return ""
