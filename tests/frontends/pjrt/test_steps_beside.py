"""Ranks on which JAX's steps and shardc's own run side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_jobs import SECONDS, mpiexec, start

pytest.importorskip("jax")


@pytest.mark.parametrize("more", [{}, {"SHARDC_SHARED_MEMORY": "0"}], ids=["shared memory", "messages"])
def test_own_programs_begin_while_steps_of_jax_are_in_flight(tmp_path: Path, more: dict[str, str]) -> None:
    script = str(Path(__file__).parent / "steps_beside_program.py")
    job = start(mpiexec(4, script), tmp_path, **more)
    out, error = job.communicate(timeout=SECONDS)
    assert job.returncode == 0, error
    assert out.count("done") == 4
