"""Orders of kind ``inspect``: the names, shapes and annotations of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shardc.hlo.codec import plain
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import Sharding
from shardc.service.orders import InspectOrder
from shardc.service.results import ProgramFacts, ValueFacts
from shardc.service.workers.workbench import Workbench

if TYPE_CHECKING:
    from shardc.sharding.notations.annotate import Nameable

__all__ = ["inspect_program"]

#: How many values inside a program are listed.
_MOST_VALUES = 5000


def inspect_program(bench: Workbench, order: InspectOrder) -> dict[str, bytes]:
    """``program.json``, see `ProgramFacts`."""
    from shardc.compiler.lower.as_scheduled import is_scheduled
    from shardc.frontends.load import content_kind
    from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
    from shardc.sharding.notations.annotate import nameable
    from shardc.sharding.notations.device_count import device_count
    from shardc.sharding.notations.tile_assignments import convert_to_axes

    program = bench.open_program()
    with bench.stage("inspect"):
        module = program.module
        partitioned, scheduled = is_partitioned(module), is_scheduled(module)
        module = module if partitioned or scheduled else convert_to_axes(module)
        arguments, results, *inside = nameable(module)
        values = [*_facts(v for table in inside for v in _unambiguous(table))]
        facts = ProgramFacts(
            name=module.name,
            kind=content_kind(bench.programs[order.program], order.name),
            devices=max(module.num_partitions, device_count(module)),
            mesh={} if module.mesh is None else module.mesh.shape,
            parameters=tuple(_facts(_by_their_names(module, arguments))),
            results=tuple(_facts(results)),
            values=tuple(values[:_MOST_VALUES]),
            left_out=max(0, len(values) - _MOST_VALUES),
            partitioned=partitioned,
            scheduled=scheduled,
            own_mesh=program.mesh,
            arg_names=program.arg_names,
        )
        return {"program.json": plain.to_json(facts).encode()}


def _by_their_names(module: Module, arguments: Iterable[Nameable]) -> Iterator[Nameable]:
    """Each argument once, by the program's name for it, else the text's."""
    given = dict(zip(module.parameters, module.arg_names, strict=False))
    return (v for v in arguments if v.name == (given.get(v.instruction) or v.instruction.name))


def _unambiguous(table: Iterable[Nameable]) -> Iterator[Nameable]:
    """Those whose names mean one value: annotations take no others."""
    values = list(table)
    count = Counter(v.name for v in values)
    return (v for v in values if count[v.name] == 1)


def _facts(values: Iterable[Nameable]) -> Iterator[ValueFacts]:
    """Arrays, each name once: the first is what annotations mean by it."""
    seen: set[str] = set()
    for value in values:
        if value.shape.is_array and value.name not in seen:
            seen.add(value.name)
            dtype, shape = str(value.shape.dtype), tuple(value.shape.dims)
            yield ValueFacts(value.name, dtype, shape, _spec(value), value.instruction.source)


def _spec(value: Nameable) -> str:
    from shardc.sharding.notations.partition_spec import dims_text

    found = value.instruction.sharding
    sharding = found[value.leaf] if isinstance(found, tuple) else found
    return dims_text(sharding.dims) if isinstance(sharding, Sharding) else ""
