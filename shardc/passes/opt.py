"""Passes run on programs: ``shardc opt``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.passes import Pass, PassTimes, run_pipeline
from shardc.hlo.units import count_text
from shardc.partitioner.prepare.adopt_partitioned import adopt, is_partitioned
from shardc.partitioner.prepare.name_axes import name_axes
from shardc.passes.options import make, options_of
from shardc.passes.parse import WHERE, parse_passes
from shardc.passes.pipelines import PIPELINES, Pipeline
from shardc.passes.table import PASSES
from shardc.sharding.notations.annotate import annotate
from shardc.sharding.notations.names import near_names
from shardc.sharding.notations.read_over import read_over
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = ["list_passes", "prepare_module", "read_passes", "run_passes"]


def read_passes(text: str) -> tuple[Pass | Pipeline, ...]:
    """The passes and pipelines that ``text`` asks for, such as ``simplify,fuse{limit=8}``.

    Raises `InputError` for names and options that there are not, naming near ones, and for values of another type.
    """
    known: dict[str, Pass | Pipeline] = {**PASSES, **PIPELINES}
    out: list[Pass | Pipeline] = []
    for asked in parse_passes(text):
        if asked.name not in known:
            fix = f"{near_names(asked.name, known)}; --list-passes has them all"
            raise InputError(f"unknown pass {asked.name!r}", where=WHERE, fix=fix)
        out.append(make(type(known[asked.name]), asked.options, asked.name))
    return tuple(out)


def run_passes(
    module: Module, passes: Sequence[Pass | Pipeline], config: Config, times: PassTimes | None = None
) -> Module:
    """``module`` after ``passes``, each of whose results is verified; ``times`` gets the seconds of each."""
    config = replace(config, check=True)
    for one in passes:
        inside = one.passes(module, config) if isinstance(one, Pipeline) else (one,)
        module = run_pipeline(module, inside, config, times=times)
    return module


def prepare_module(module: Module, annotations: Mapping[str, Any], mesh: Mesh | None) -> Module:
    """A module as passes want it: shardings, and groups of a per-device program, over the axes of one mesh.

    ``mesh`` and ``annotations`` are those of the command line. Raises `InputError` where they do not fit.
    """
    if not is_partitioned(module):
        if mesh is not None and module.mesh is None:
            module, mesh = read_over(module, mesh), None
        if annotations or mesh is not None:
            return annotate(module, annotations, mesh)
        sharded = any(i.sharding is not None for i in module.instructions())
        return convert_to_axes(module) if sharded else module
    if annotations:
        raise InputError(
            "the program is already partitioned", where="--annotate", fix="annotate it before partitioning"
        )
    if mesh is not None and mesh.size != module.num_partitions:
        what = (
            f"a mesh of {count_text(mesh.size, 'device')} for a program that is partitioned for {module.num_partitions}"
        )
        raise InputError(what, where="--mesh")
    module = adopt(module if mesh is None else module.with_(mesh=mesh))
    return module if module.mesh is None else name_axes(module, module.mesh)


def list_passes() -> dict[str, list[dict[str, Any]]]:
    """All passes and pipelines as plain data: name, reason, options; pipelines with their passes."""
    unit = Instruction("tuple", tuple_shape())
    nothing = make_module("nothing", Computation("main", (unit,), unit))
    contents = {n: [inside.name for inside in p.passes(nothing, Config())] for n, p in PIPELINES.items()}
    return {
        "passes": [_described(p) for p in PASSES.values()],
        "pipelines": [{**_described(p), "passes": contents[n]} for n, p in PIPELINES.items()],
    }


def _described(one: Pass | Pipeline) -> dict[str, Any]:
    return {"name": one.name, "why": one.why, "options": [asdict(o) for o in options_of(type(one))]}
