"""Each example for MPI users gives on 1, 2 and 4 ranks what plain NumPy gives, and what its mpi4py program gives."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
#: Sizes and steps: small, and 4 ranks have uneven shares of some.
SCRIPTS = {
    "heat": (50, 6),
    "poisson": (18, 2),
    "shallow_water": (66, 5),
    "lattice_boltzmann": (64, 3),
    "cg": (66, 3),
    "nbody": (66, 2),
    "kmeans": (1001, 3),
}
SHARDC = (sys.executable, "-m", "shardc", "mpiexec", "-n")
STARTS = {
    "plain NumPy": (sys.executable,),
    "virtual devices": (sys.executable,),
    "1 rank": (*SHARDC, "1", sys.executable),
    "2 ranks": (*SHARDC, "2", sys.executable),
    "4 ranks": (*SHARDC, "4", sys.executable),
    "mpi4py, 2 ranks": (*SHARDC, "2", sys.executable),
}


@cache
def printed(start: str) -> dict[str, list[str]]:
    """The words of the line of results that each script prints, by the script's title."""
    folder = REPOSITORY / "examples" / ("by_hand" if "mpi4py" in start else "")
    scripts = [f"{folder / name}.py:{size}:{steps}" for name, (size, steps) in SCRIPTS.items()]
    plain = ["plain"] if start == "plain NumPy" else []
    command = [*STARTS[start], str(REPOSITORY / "tests" / "run_scripts.py"), *plain, *scripts]
    devices = {"SHARDC_NUM_DEVICES": "4"} if start == "virtual devices" else {}
    done = subprocess.run(command, env=os.environ | devices, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    lines = [line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line]
    return {title.replace(" ", "_").lower(): words.replace(",", "").split() for title, words in lines}


@pytest.mark.mpi
@pytest.mark.parametrize("start", [start for start in STARTS if start != "plain NumPy"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_numbers_are_those_of_plain_numpy(name: str, start: str) -> None:
    expected, found = printed("plain NumPy")[name], printed(start)[name]
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if b.replace(".", "").replace("-", "").isdigit():
            np.testing.assert_allclose(float(a), float(b), rtol=1e-7, atol=1e-12)
        else:
            assert a == b
