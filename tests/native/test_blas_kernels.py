"""The library that multiplies matrices: its kernels suit the CPU, users may choose others, the environment stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shardc.native.blas import CORE_TYPES
from shardc.native.target import host_target

_PROGRAM = """
import ctypes, os
from shardc.native.blas import library
before = dict(os.environ)
name = library().scipy_openblas_get_corename
name.restype = ctypes.c_char_p
assert dict(os.environ) == before
print(name().decode())
"""


def core_type(wanted: str | None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    if wanted is not None:
        environment["OPENBLAS_CORETYPE"] = wanted
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_kernels_of_the_table() -> None:
    wanted = CORE_TYPES.get(host_target().cpu)
    if wanted is None:
        pytest.skip("the library chooses on this CPU")
    assert core_type(None) == wanted


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="names of x86-64 kernels")
def test_a_user_may_choose() -> None:
    assert core_type("Nehalem") == "Nehalem"
