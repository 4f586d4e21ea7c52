"""How the compiler's own time grows: with the length of the program and with the number of devices."""

from __future__ import annotations

import time

from programs import transformer

import shardc
from shardc.hlo.mesh import Mesh
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo

LAYERS = (4, 16, 48)
MESHES = ({"data": 2, "model": 2}, {"data": 64, "model": 4}, {"data": 4096, "model": 4})


def rows() -> list[tuple[str, str, str, str, str, str]]:
    """(layers, instructions, devices, read, propagate, partition) as text."""
    out = []
    for layers in LAYERS:
        case = transformer(layers=layers, batch=4096 * 4)
        shapes = shardc.jit(case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs)
        program = shapes.lower(*case.arguments)
        count = sum(1 for _ in program.module.instructions())
        text = print_module(program.module)
        start = time.perf_counter()
        read_hlo(text)
        read = time.perf_counter() - start
        for mesh in MESHES if layers == LAYERS[-1] else MESHES[:1]:
            partitioned = program.annotate({}, mesh=Mesh(mesh)).partition()
            seconds = partitioned.seconds
            devices = partitioned.num_devices
            times = (f"{read:.2f} s", f"{seconds['propagate']:.2f} s", f"{seconds['partition']:.2f} s")
            out.append((str(layers), f"{count:,}", f"{devices:,}", *times))
    return out
