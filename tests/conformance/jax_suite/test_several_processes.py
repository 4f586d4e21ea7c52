"""JAX's own tests of several processes: four of two devices each, which JAX's launcher starts, on the platform shardc.

A file is one run, since its processes go through its cases together. Those that pass on XLA:CPU pass.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from case_lists import expected_failures
from children import suite_folder
from plugin_environment import plugin_environment

#: File -> how many of its cases pass on XLA:CPU with these processes and devices; it skips the others.
PASSING = {
    "all_reduce_test": 8,
    "array_test": 71,
    "key_value_store_test": 10,
    "multihost_utils_test": 27,
    "pjit_test": 17,
}
PROCESSES, DEVICES = 4, 2
SECONDS = 600


def outcomes(file: Path, environment: Mapping[str, str], folder: Path) -> dict[str, set[str]]:
    """OK, FAILED and SKIPPED -> the cases of which a process says that."""
    process = subprocess.Popen(
        [sys.executable, str(file), f"--num_processes={PROCESSES}"],
        env={**environment, "TEST_UNDECLARED_OUTPUTS_DIR": str(folder)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    found: dict[str, set[str]] = {"OK": set(), "FAILED": set(), "SKIPPED": set()}
    for log in folder.glob("jax_*_stderr.log"):
        for kind, case in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] ([\w.]+)", log.read_text(encoding="utf-8"), re.M):
            found[kind].add(case)
    return found


def last_words(folder: Path) -> str:
    return "\n".join(f"{p.name}:\n{p.read_text(encoding='utf-8')[-3000:]}" for p in sorted(folder.glob("*_stderr.log")))


@pytest.mark.full
@pytest.mark.parametrize("file", PASSING)
def test_file(file: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    for module in ("absl", "portpicker"):
        pytest.importorskip(module)
    path = suite_folder() / "multiprocess" / f"{file}.py"
    if not path.exists():
        pytest.skip(f"no tests of JAX at {path.parent} (set SHARDC_CONFORMANCE)")
    environment = plugin_environment("shardc", tmp_path, DEVICES)
    found = outcomes(path, environment, tmp_path)
    passed = found["OK"] - found["FAILED"]
    record_property(f"figure: JAX's own multiprocess/{file} on four processes", f"{len(passed)} of {PASSING[file]}")
    expected = {case for (where, case) in expected_failures() if where == f"multiprocess/{file}"}
    assert found["FAILED"] == expected, last_words(tmp_path)
    assert len(passed) == PASSING[file] - len(expected), last_words(tmp_path)
