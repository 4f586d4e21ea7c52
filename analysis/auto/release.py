"""Annotations of arguments and results that may change: taken away, but for those to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.ir import Computation, Instruction, rebuild_computation, rebuild_computations
from shardc.hlo.ir.sharding import Sharding
from shardc.partitioner.program import SourceProgram
from shardc.sharding.notations.annotate import result_names
from shardc.sharding.notations.names import match_names, near_names

__all__ = ["Released", "release"]


@dataclass(frozen=True)
class Released:
    """``program`` without the annotations of the arguments and results with these ``names``."""

    program: SourceProgram
    names: frozenset[str] = frozenset()


def release(program: SourceProgram, keep: Sequence[str] | None) -> Released:
    """``program`` with the annotations of those arguments and results only whose names are among ``keep``, which may
    be globs; None: with all. Raises `AnnotationError` for what names nothing."""
    if keep is None:
        return Released(program)
    module = program.module
    arguments = dict(enumerate(module.argument_names))
    results = dict(enumerate(result_names(module)))
    known = [*arguments.values(), *results.values()]
    kept: set[str] = set()
    for name in keep:
        found = match_names(name, known)
        if not found:
            raise AnnotationError(
                f"no argument or result is named {name!r}", where="keep (--keep)", fix=near_names(name, known)
            )
        kept.update(found)
    root = module.entry.root
    leaves = root.sharding if isinstance(root.sharding, tuple) else (root.sharding,) * len(results)
    freed = {
        n: a for n, a in arguments.items() if a not in kept and isinstance(module.parameters[n].sharding, Sharding)
    }
    free = {n: r for n, r in results.items() if r not in kept and isinstance(leaves[n], Sharding)}
    parameters = {module.parameters[n] for n in freed}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in parameters:
            return old.replace(operands=operands, sharding=None)
        if old is root and free:
            left = tuple(None if n in free else s for n, s in enumerate(leaves))
            return old.replace(operands=operands, sharding=left if root.shape.is_tuple else None)
        return None

    def bare(c: Computation, called: Mapping[Computation, Computation]) -> Computation:
        return rebuild_computation(c, change, called)

    if not freed and not free:
        return Released(program)
    names = frozenset((*freed.values(), *free.values()))
    return Released(replace(program, module=rebuild_computations(module, bare), content=""), names)
