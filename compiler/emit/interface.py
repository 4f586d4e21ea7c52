"""What an executable says of its program besides code: arguments, results, collectives, checks, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand, RaggedShape
from shardc.collectives.call.schedule import check_schedule
from shardc.compiler.cache.cache import module_key
from shardc.compiler.emit.collective_schedule import collective_schedule
from shardc.compiler.executable import ArraySpec, CheckSite, Executable, HostArray, HostCall
from shardc.compiler.lower.buffers.linearise import array_leaves
from shardc.compiler.lower.expand.canonicalise_collectives import reduction_of
from shardc.compiler.lower.lowered import Buffer, Collective, KernelStep, Lowered, memory_analysis
from shardc.hlo.ir.callbacks import title_of
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import AnySharding, Sharding
from shardc.hlo.ir.types import Shape

__all__ = ["argument_specs", "describe_program", "result_specs"]


def describe_program(module: Module, lowered: Lowered) -> Executable:
    """The executable of ``module``, of which ``lowered`` was made, without code: whoever emits it says how it runs."""
    collectives = tuple(_call(c, lowered) for c in lowered.collectives)
    schedule = collective_schedule(lowered.module, lowered.steps)
    check_schedule(schedule, collectives, _num_devices(module))
    return Executable(
        name=module.name,
        target="",
        objects=(),
        symbol="",
        num_devices=_num_devices(module),
        arguments=argument_specs(module),
        results=result_specs(module),
        arena_bytes=lowered.plan.arena_bytes,
        constants=lowered.constants.data,
        collectives=collectives,
        schedule=schedule,
        donated=_donated(module),
        aliases=lowered.plan.aliases,
        memory=memory_analysis(lowered),
        checks=tuple(_check_site(c.instruction) for c in lowered.checks),
        once=lowered.once.groups,
        shared=lowered.once.in_place,
        result_classes=lowered.once.results,
        sections=lowered.plan.sections,
        meaning=module_key(module, None),
        hosts=tuple(_host_call(k, lowered) for k in lowered.hosts),
    )


def _check_site(i: Instruction) -> CheckSite:
    return CheckSite(i.attrs["custom_call_target"], i.name, i.source)


def _host_call(step: KernelStep, lowered: Lowered) -> HostCall:
    i = step.instruction
    sides = ((step.operands, [o.shape for o in i.operands]), (step.results, array_leaves(i.shape)))
    operands, results = (
        tuple(HostArray(lowered.plan.ref(b), s.plain) for b, s in zip(buffers, shapes, strict=True))
        for buffers, shapes in sides
    )
    config, marks = i.attrs.get("backend_config", ""), i.attrs.get("frontend_attributes", ())
    target = i.attrs["custom_call_target"]
    return HostCall(target, config, marks, i.shape.plain, operands, results, title_of(i), i.name, i.source)


def _num_devices(module: Module) -> int:
    """Devices that run the module: one for a global program without collectives."""
    several = module.partitioned or any(i.opcode in COLLECTIVES for i in module.instructions())
    return module.num_partitions * module.replica_count if several else 1


def _donated(module: Module) -> tuple[int, ...]:
    return tuple(sorted({a.parameter for a in module.aliases} | set(module.donors)))


def argument_specs(module: Module) -> tuple[ArraySpec, ...]:
    names = module.arg_names or ("",) * len(module.parameters)
    local = [(n, s) for n, p in zip(names, module.parameters, strict=True) for s in array_leaves(p.shape.plain)]
    shardings = [s for p in module.parameters for s in _shardings(p.sharding, len(array_leaves(p.shape)))]
    return _array_specs(module, "global_parameters", local, shardings)


def result_specs(module: Module) -> tuple[ArraySpec, ...]:
    root = module.entry.root
    shapes = array_leaves(root.shape.plain)
    names = module.result_names if len(module.result_names) == len(shapes) else ("",) * len(shapes)
    return _array_specs(
        module, "global_results", list(zip(names, shapes, strict=True)), _shardings(root.sharding, len(shapes))
    )


def _shardings(sharding: AnySharding, count: int) -> list[Sharding | None]:
    items = sharding if isinstance(sharding, tuple) else (sharding,)
    if len(items) != count:
        return [None] * count
    return [s if isinstance(s, Sharding) else None for s in items]


def _array_specs(
    module: Module, key: str, local: Sequence[tuple[str, Shape]], shardings: Sequence[Sharding | None]
) -> tuple[ArraySpec, ...]:
    """One spec per flat array; a module for one device has neither other global shapes nor shardings."""
    whole = [leaf for s in module.attrs.get(key, ()) for leaf in array_leaves(s.plain)]
    if not module.partitioned or len(whole) != len(local):
        return tuple(ArraySpec(name, shape, shape, None) for name, shape in local)
    return tuple(ArraySpec(name, g, shape, s) for (name, shape), g, s in zip(local, whole, shardings, strict=True))


def _call(step: Collective, lowered: Lowered) -> CollectiveCall:
    i = step.instruction
    groups = i.attrs["source_target_pairs"] if i.opcode == "collective-permute" else i.attrs["replica_groups"]
    ragged = _ragged(i) if i.opcode == "ragged-all-to-all" else None
    results: Sequence[Buffer | None] = step.results if ragged is None else (None, *step.results, *[None] * 4)
    operands = tuple(
        CollectiveOperand(
            lowered.plan.ref(o),
            _NOTHING if r is None else lowered.plan.ref(r),
            o.shape.dtype,
            o.shape.size,
            -1 if r is None else lowered.once.wanted.get(r, -1),
        )
        for o, r in zip(step.operands, results, strict=True)
    )
    reduction = reduction_of(i) if "to_apply" in i.attrs else ""
    reason = i.origin.reason if i.origin else ""
    return CollectiveCall(
        step.index, i.opcode, reduction, groups, operands, i.name, i.source, reason, asynchronous=step.asynchronous,
        ragged=ragged,
    )  # fmt: skip


#: Where nothing is written.
_NOTHING = BufferRef("arena", 0, 0, 0)


def _ragged(i: Instruction) -> RaggedShape:
    data, output = (o.shape for o in i.operands[:2])
    return RaggedShape(data.dims[0], output.dims[0], math.prod(output.dims[1:]) * output.dtype.nbytes)
