"""`repr` of the stages: one short line, whatever the size of the program."""

from __future__ import annotations

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

X = np.ones((4, 6), np.float32)


def test_each_stage_tells_name_border_mesh_and_size() -> None:
    program = shardc.trace(lambda x, w: np.tanh(x @ w), X, X.T.copy(), mesh=Mesh({"d": 2}), in_shardings=(P("d"), None))
    border = "lambda: x f32[4,6], w f32[6,4] -> result f32[4,4]; mesh d=2"
    assert repr(program) == f"<Program {border}; {sum(1 for _ in program.module.instructions())} instructions>"
    assert repr(program.propagate()).startswith(f"<Propagated {border}; ")
    local = border.replace("x f32[4,6]", "x f32[2,6]").replace("-> result f32[4,4]", "-> result f32[2,4]")
    assert repr(program.partition()).startswith(f"<Partitioned {local}, shapes of one device; ")
    compiled = program.compile()
    assert repr(compiled) == f"<Compiled {border.partition(';')[0]}; 2 devices; {compiled.executable.target}>"


@pytest.mark.parametrize("count", [0, 6, 7, 200])
def test_large_programs_have_short_lines(count: int) -> None:
    def many(*values: np.ndarray) -> tuple[np.ndarray, ...]:
        total = np.ones(2)
        for value in values:
            total = total + value
        return (total, *values)

    many.__name__ = "n" * 300
    program = shardc.trace(many, *[np.ones(2)] * count)
    for stage in (program, program.propagate(), program.partition()):
        assert len(repr(stage)) < 600
        assert (f", and {count - 6} more -> " in repr(stage)) == (count > 6)
