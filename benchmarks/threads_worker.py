"""One side of ``threads.py``: compiles and runs programs with the JAX of this process, XLA's or shardc's devices.

Usage: ``threads_worker.py FOLDER NAME ...``: writes ``NAME.json`` (peak bytes of a device, or an error),
``NAME.hlo`` (the compiled text) and ``NAME.npy`` (the result) there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threads_programs import THREADS, Places
from worker import peak_bytes

import shardc


def compiled_text(function: Any, arguments: tuple[Any, ...]) -> tuple[str, int]:
    """The text of one device's program, and the memory that it needs for a call by its compiler's own figures."""
    if hasattr(function, "partitioned"):  # of shardc.jit
        stage = function.partitioned(*arguments)
        return stage.as_text(), stage.memory_analysis()["peak_bytes"]
    compiled = function.lower(*arguments).compile()
    return compiled.as_text(), peak_bytes(compiled)


def main(folder: Path, names: list[str]) -> None:
    jit = shardc.jit if os.environ["JAX_PLATFORMS"] == "shardc" else jax.jit
    for thread in THREADS:
        if thread.name not in names:
            continue
        try:
            function, arguments = thread.make(Places(thread.mesh, jit))
            text, peak = compiled_text(function, arguments)
            result = np.asarray(function(*arguments))
        except Exception as error:
            answer: dict[str, Any] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        else:
            (folder / f"{thread.name}.hlo").write_text(text)
            np.save(folder / f"{thread.name}.npy", result)
            answer = {"peak_bytes": peak}
        (folder / f"{thread.name}.json").write_text(json.dumps(answer))


main(Path(sys.argv[1]), sys.argv[2:])
