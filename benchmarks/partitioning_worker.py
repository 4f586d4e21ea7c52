"""The other side of ``partitioning.py``: XLA partitions and compiles the programs on forced host devices.

Usage: ``partitioning_worker.py FOLDER NUMBER ...``: for the programs of these numbers writes ``<number>.hlo`` (the
compiled program) and ``<number>.json`` (per-device peak memory by XLA's own buffer assignment) there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
from partitioning_programs import Places
from partitioning_set import ALL
from worker import peak_bytes


def main(folder: Path, numbers: list[int]) -> None:
    for number in numbers:
        program = ALL[number]
        mesh = jax.make_mesh(tuple(program.mesh.values()), tuple(program.mesh))
        mesh = jax.sharding.Mesh(mesh.devices, mesh.axis_names)
        function, arguments = program.make(Places(mesh))
        compiled = function.lower(*arguments).compile()
        (folder / f"{number}.hlo").write_text(compiled.as_text())
        peak = peak_bytes(compiled)
        (folder / f"{number}.json").write_text(json.dumps({"peak_bytes": peak}))


main(Path(sys.argv[1]), [int(n) for n in sys.argv[2:]])
