"""The step of tables as plain Python: the same results as native code's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.hlo.config import Config
from shardc.native.llvm.target import host_target
from shardc.native.lowlevel.kinds import ADDRESS, MemoryPlace
from shardc.native.lowlevel.records import Span
from shardc.native.routines.records import ROUTINE_STEP
from shardc.native.routines.routine_step import routine_step
from tests.compiler.checking import program, random_arguments

PROGRAMS = {
    "move": "x = f32[4,3] parameter(0)\nc = f32[2,3] constant({{1,2,3},{4,5,6}})\n"
    "ROOT r = f32[6,3] concatenate(x, c), dimensions={0}",
    "transpose": "x = f32[2,3,4] parameter(0)\nROOT r = f32[4,3,2] transpose(x), dimensions={2,1,0}",
    "product": "x = f64[3,4] parameter(0)\ny = f64[4,5] parameter(1)\n"
    "ROOT r = f64[3,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "x = f32[1,5,2] parameter(0)\nw = f32[3,2,4] parameter(1)\n"
    "ROOT r = f32[1,5,4] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_python_and_native_code_agree(name: str) -> None:
    module = program(PROGRAMS[name])
    executable, args = build_executable(module, Config(), host_target()), random_arguments(module)
    assert executable.symbol == ROUTINE_STEP
    (wanted,) = run_single(executable, args)
    got = np.zeros_like(wanted)
    arena = np.full(executable.arena_bytes, 0x5A, np.uint8)
    constants = ctypes.create_string_buffer(executable.constants)
    tables = [np.array([a.ctypes.data for a in arrays], np.int64) for arrays in (args, [got])]
    spans = [Span(MemoryPlace(ADDRESS), t.ctypes.data) for t in tables]
    assert routine_step(arena.ctypes.data, *spans, ctypes.addressof(constants), 0) == -1
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
