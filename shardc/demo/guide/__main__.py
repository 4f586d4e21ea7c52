"""``python -m shardc.demo.guide`` writes ``step.mlir`` again, beside ``step.py``."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path
from typing import Any

from shardc.stages.jit import jit
from shardc.stages.save import save


def main() -> None:
    """Sources in the file are relative, such as ``step.py:17``: they name no folder of this machine."""
    folder = Path(__file__).parent
    with contextlib.chdir(folder):
        said: dict[str, Any] = runpy.run_path("step.py")
        shardings = (said["specs"], said["rows"], said["rows"])
        step = jit(said["step"], mesh=said["mesh"], in_shardings=shardings, donate_argnums=0)
        written = Path("step.mlir")
        save(step.program(said["weights"], said["x"], said["target"]), written)
        root = f"{folder.parents[2]}/"
        written.write_text(written.read_text(encoding="utf-8").replace(root, ""), encoding="utf-8")


if __name__ == "__main__":
    main()
