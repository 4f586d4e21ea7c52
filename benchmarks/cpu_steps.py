"""Steps on one device: shardc against XLA:CPU, a process each, in turn. Ratios are XLA's time over ours.

python benchmarks/cpu_steps.py [PROGRAM ...] [--threads N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

import numpy as np
from bandwidth import bandwidth
from cpu_programs import PROGRAMS
from installed import byte_compile
from worker import Worker


def side(name: str, threads: int | None = None, flags: str = "") -> Worker:
    """``shardc`` or ``xla`` on so many cores (None: all)."""
    return Worker("cpu_worker.py", name, str(threads or 0), flags=flags)


def measure(name: str, threads: int | None = None, rounds: int = 9, flags: str = "") -> dict[str, Any]:
    """One program: seconds per step (medians), the ratio's median and spread, compile times, peaks in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        ours, xla = side("shardc", threads), side("xla", threads, flags)
        cold, theirs = ours.ask(f"{name} {folder}"), xla.ask(name)
        warm = ours.ask(f"{name} {folder}")
        first = ours.ask("1"), xla.ask("1")
        np.testing.assert_allclose(first[0]["value"], first[1]["value"], rtol=2e-3, atol=1e-2)
        steps = max(1, min(200, int(0.25 / max(first[1]["step"], 1e-4))))
        ours.ask(str(steps)), xla.ask(str(steps))
        pairs = [(ours.ask(str(steps)), xla.ask(str(steps))) for _ in range(rounds)]
        ours.close()
        xla.close()
    ratios = sorted(b["step"] / a["step"] for a, b in pairs)
    return {
        "step": statistics.median(a["step"] for a, _ in pairs),
        "xla": statistics.median(b["step"] for _, b in pairs),
        "processor": statistics.median(a["processor"] for a, _ in pairs),
        "xla processor": statistics.median(b["processor"] for _, b in pairs),
        "ratio": statistics.median(ratios),
        "spread": (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
        "compile": (cold["compile"], warm["compile"], theirs["compile"]),
        "peak": (cold["peak"], theirs["peak"]),
        "resident": (pairs[-1][0]["resident"], pairs[-1][1]["resident"]),
    }


#: XLA's time over ours that the project wants, by program.
GOALS = {
    "perceptron": 1.4,
    "transformer": 2.0,
    "convnet": 6.0,
    "small-layers": 10,
    "small-cells": 10,
    "small-mixed": 10,
}
#: XLA without the convolutions of its newer library.
PLAIN_CONVOLUTIONS = "--xla_cpu_experimental_ynn_fusion_type="


def rows() -> list[tuple[str, ...]]:
    """(program, ours, XLA, ratio, spread, ratio on one core, goal, peak) as text."""
    out = []
    for name, build in PROGRAMS.items():
        if build().moved_bytes:
            continue
        out.append(_row(name, build().name, GOALS.get(name)))
        if name == "convnet":
            out.append(_row(name, build().name + ", XLA without its YNN fusions", 1.5, PLAIN_CONVOLUTIONS))
    return out


def _row(name: str, title: str, goal: float | None, flags: str = "") -> tuple[str, ...]:
    m, one = measure(name, flags=flags), measure(name, threads=1, rounds=3, flags=flags)
    return (
        title, _time(m["step"]), _time(m["xla"]), f"{m['ratio']:.2f}", f"{m['spread'][0]:.2f} to {m['spread'][1]:.2f}",
        f"{one['ratio']:.2f}", f"{goal:g}" if goal else "", f"{m['peak'][0] / m['peak'][1]:.2f}",
    )  # fmt: skip


def kernel_rows() -> list[tuple[str, ...]]:
    """(kernel, ours, XLA, ratio, GB/s, the memory's GB/s, share that we reach, share XLA reaches) as text.

    The memory's bandwidth, of copying, or of reading for a kernel that writes little, is measured before and after
    each kernel: on a shared machine it moves.
    """
    out = []
    for name, build in PROGRAMS.items():
        program = build()
        if not program.moved_bytes:
            continue
        before, m, after = bandwidth(rounds=7), measure(name), bandwidth(rounds=7)
        reads = program.moved_bytes < 1.2 * program.arguments[-1].nbytes
        memory = sum(found.read if reads else found.copy for found in (before, after)) / 2
        rate, theirs = program.moved_bytes / m["step"], program.moved_bytes / m["xla"]
        out.append(
            (program.name, _time(m["step"]), _time(m["xla"]), f"{m['ratio']:.2f}", f"{rate / 1e9:.1f}",
             f"{memory / 1e9:.1f} ({'read' if reads else 'copy'})", f"{rate / memory:.0%}", f"{theirs / memory:.0%}")
        )  # fmt: skip
    return out


def compile_rows() -> list[tuple[str, ...]]:
    """(program, cold, from the cache, XLA, XLA over cold, cold over cached) as text: medians of three."""
    out = []
    for name in GOALS:
        found = [measure(name, rounds=1)["compile"] for _ in range(3)]
        cold, warm, theirs = (statistics.median(column) for column in zip(*found, strict=True))
        out.append(
            (
                PROGRAMS[name]().name,
                _time(cold),
                _time(warm),
                _time(theirs),
                f"{theirs / cold:.2f}",
                f"{cold / warm:.1f}",
            )
        )
    return out


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--xla-flags", default="")
    options = parser.parse_args()
    byte_compile()
    for name in options.programs:
        m = measure(name, options.threads, options.rounds, options.xla_flags)
        cold, warm, theirs = m["compile"]
        print(
            f"{name:16s} step {m['step'] * 1e3:9.3f} ms  XLA {m['xla'] * 1e3:9.3f} ms  ratio {m['ratio']:6.2f} "
            f"({m['spread'][0]:.2f}-{m['spread'][1]:.2f})  processor {m['xla processor'] / m['processor']:5.2f}  "
            f"compile {cold:.2f}/{warm:.3f}/{theirs:.2f} s  peak {m['peak'][0] / m['peak'][1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
