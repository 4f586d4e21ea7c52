"""One side of ``threads.py``: compiles and runs programs with the JAX of this process, XLA's or shardc's devices.

Usage: ``threads_worker.py FOLDER NAME ...``: writes ``NAME.json`` (peak bytes of a device, or an error),
``NAME.hlo`` (the compiled text) and ``NAME.npy`` (the result) there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threads_programs import THREADS, Places


def peak_bytes(compiled: Any) -> int:
    """Memory that a device needs for a call, by the compiler's own figures."""
    m = compiled.memory_analysis()
    return int(m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes)


def main(folder: Path, names: list[str]) -> None:
    for thread in THREADS:
        if thread.name not in names:
            continue
        try:
            function, arguments = thread.make(Places(thread.mesh))
            compiled = function.lower(*arguments).compile()
            result = np.asarray(compiled(*arguments))
        except Exception as error:
            answer: dict[str, Any] = {"error": str(error).splitlines()[0]}
        else:
            (folder / f"{thread.name}.hlo").write_text(compiled.as_text())
            np.save(folder / f"{thread.name}.npy", result)
            answer = {"peak_bytes": peak_bytes(compiled)}
        (folder / f"{thread.name}.json").write_text(json.dumps(answer))


main(Path(sys.argv[1]), sys.argv[2:])
