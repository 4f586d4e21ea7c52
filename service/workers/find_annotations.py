"""Orders of kind ``auto``: the annotations with which a step is shortest."""

from __future__ import annotations

from shardc.hlo.errors import InputError
from shardc.service.orders import AutoOrder
from shardc.service.workers.workbench import Workbench

__all__ = ["find_annotations"]

#: Fields whose other values say how a given program is partitioned; here that is part of what is found.
_FIXED = ("conservative", "partitioned_for", "windowed_einsum", "pipelined_loops", "decomposed_rings", "plan")


def find_annotations(bench: Workbench, order: AutoOrder) -> dict[str, bytes]:
    """``plan.json``, ``plan.py``, ``plan.toml``, and the files of `partition_program` for the annotated program."""
    from shardc.analysis.auto.auto import auto
    from shardc.analysis.sweep.meshes import mesh_to_resize

    usual = AutoOrder(program=order.program)
    for name in _FIXED:
        if getattr(order, name) != getattr(usual, name):
            raise InputError(
                "the search for annotations does not take this option", where=f"order.{name}", fix="omit it"
            )
    machine, program, mesh = bench.need_machine(), bench.read_program(), order.mesh
    if order.devices and order.annotations and not mesh and program.mesh is None:
        mesh = mesh_to_resize(order.annotations.values()).shape
    program = bench.annotate(program, order.annotations, mesh)
    with bench.stage("find annotations"):
        found = auto(
            program, machine=machine, devices=order.devices or None, memory=order.memory or None, keep=order.keep
        )
    return {
        **bench.partition_files(found.partitioned),
        "plan.json": bench.json(found.to_dict()),
        "plan.py": found.as_code().encode(),
        "plan.toml": found.as_toml().encode(),
    }
