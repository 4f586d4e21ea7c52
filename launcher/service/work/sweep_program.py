"""Orders of kind ``sweep``: meshes and annotations ranked by predicted time."""

from __future__ import annotations

from dataclasses import replace

from shardc.hlo import plain
from shardc.hlo.errors import InputError
from shardc.launcher.service.orders import SweepOrder
from shardc.launcher.service.work.workbench import Workbench, mesh_of

__all__ = ["sweep_program"]


def sweep_program(bench: Workbench, order: SweepOrder) -> dict[str, bytes]:
    """``sweep.json``. Candidates are assessed one after the other, in this process, which has limits."""
    from shardc.launcher.sweep.meshes import parse_limit
    from shardc.launcher.sweep.run import sweep
    from shardc.launcher.sweep.sets import AnnotationSet, SetFile, sets_of

    machine, mesh = bench.need_machine(), mesh_of(order.mesh)
    if order.programs and order.programs[0] != order.program:
        fix = "programs of weak scaling are all of them, or none"
        raise InputError("the order's program is not the first of its programs", where="order.programs", fix=fix)
    programs = [bench.read(digest) for digest in order.programs] or [bench.read()]
    given = tuple(
        AnnotationSet(
            s.name,
            dict(s.annotations),
            {axis: parse_limit(sizes, f"order.sets, {s.name}, {axis}") for axis, sizes in s.axes.items()},
        )
        for s in order.sets
    )
    sets = tuple(replace(s, specs={**s.specs, **order.annotations}) for s in given or sets_of(None).sets)
    own = mesh or programs[0].mesh
    if not order.devices and own is None:
        raise InputError("no number of devices", where="order.devices", fix="name some, or give a mesh")

    def heard(done: int, most: int) -> None:
        bench.progress({"stage": "sweep", "done": done, "of": most})

    with bench.stage("sweep"):
        found = sweep(
            programs if order.programs else programs[0],
            devices=order.devices or (own.size if own is not None else 1),
            machine=machine,
            mesh=mesh,
            sets=SetFile(sets, order.set_axes),
            axes=dict(order.axes) or None,
            meshes=order.meshes,
            mapping=order.mapping,
            limit=order.limit,
            refine=order.refine,
            uneven=order.uneven,
            ignore_memory=order.ignore_memory,
            jobs=1,
            progress=heard,
        )
    return {"sweep.json": plain.to_json(replace(found, machine=bench.shown_machine)).encode()}
