"""The files that every guide uses: `step.py`, a training step in JAX, and `step.mlir`, the same as StableHLO.

Start reading at `step.py`; ``python -m shardc.demo.guide`` makes `step.mlir` of it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from shardc.launcher.run.output_files import atomic_output

__all__ = ["FILES", "write_guide_files"]

FILES = ("step.py", "step.mlir")


def write_guide_files(folder: Path) -> list[Path]:
    """Copies of `FILES` in ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in FILES:
        path = folder / name
        with atomic_output(path) as file:
            file.write(resources.files(__package__).joinpath(name).read_bytes())
        written.append(path)
    return written
