"""How the compiler's own time grows: with the length of the program and with the number of devices."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from programs import transformer

import shardc
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo

LAYERS = (4, 24, 96)
LINES = (10_000, 40_000, 160_000)
#: XLA is not waited for longer, in seconds.
PATIENCE = 1800
MESHES = ({"data": 2, "model": 4}, {"data": 64, "model": 4}, {"data": 4096, "model": 4})


def rows() -> list[tuple[str, str, str, str, str, str, str]]:
    """(layers, instructions, devices, read, propagate, partition, XLA's whole compilation) as text."""
    out = []
    for layers in LAYERS:
        case = transformer(layers=layers, batch=4096 * 4)
        shapes = shardc.jit(case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs)
        program = shapes.program(*case.arguments)
        count = sum(1 for _ in program.module.instructions())
        text = print_module(program.module)
        start = time.perf_counter()
        read_hlo(text)
        read = time.perf_counter() - start
        theirs = _xla_seconds(layers)
        for mesh in MESHES if layers == LAYERS[-1] else MESHES[:1]:
            partitioned = program.annotate({}, mesh=Mesh(mesh)).partition()
            seconds = partitioned.seconds
            devices = partitioned.num_devices
            times = (f"{read:.2f} s", f"{seconds['propagate']:.2f} s", f"{seconds['partition']:.2f} s")
            out.append((str(layers), f"{count:,}", f"{devices:,}", *times, theirs if mesh == MESHES[0] else ""))
    return out


def _xla_seconds(layers: int) -> str:
    """XLA from the lowered program to the executable, for as many forced host devices as the first mesh has."""
    flag = f"--xla_force_host_platform_device_count={Mesh(MESHES[0]).size}"
    line = [sys.executable, str(Path(__file__).with_name("xla_compile.py")), str(layers)]
    try:
        done = subprocess.run(
            line, env={**os.environ, "XLA_FLAGS": flag}, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except subprocess.TimeoutExpired:
        return f"over {PATIENCE} s"
    return f"{float(done.stdout):.1f} s"


def text_rows() -> list[tuple[str, str, str]]:
    """(instructions, read, print) as text, for HLO text with source lines and shardings."""
    out = []
    for count in LINES:
        text = _long_text(count)
        start = time.perf_counter()
        module = read_hlo(text, "long.hlo")
        read = time.perf_counter() - start
        print_module(module)
        out.append((f"{count:,}", f"{read:.2f} s", f"{time.perf_counter() - start - read:.2f} s"))
    return out


def _long_text(count: int) -> str:
    shape = "f32[128,128]{1,0}"
    lines = [f"  %x0 = {shape} parameter(0)"]
    for i in range(1, count):
        source = f'metadata={{op_name="jit(step)/layer_{i % 97}/add" source_file="step.py" source_line={i % 1000}}}'
        other = max(0, i - 3)
        long = f"add({shape} %x{i - 1}, {shape} %x{other}), sharding={{devices=[2,4]<=[8]}}, {source}"
        lines.append(f"  %x{i} = {shape} {long if i % 2 else f'tanh(%x{i - 1})'}")
    return "HloModule long\n\nENTRY %main {\n" + "\n".join(lines) + "\n}\n"
