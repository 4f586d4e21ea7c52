"""The structures are as large as those that jaxlib passes; a newer jaxlib has fields behind ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_environment import plugin_environment

from shardc.frontends.pjrt.native.entries import args_of, struct_size

jax = pytest.importorskip("jax")


def test_structures_are_as_large_as_jaxlibs(tmp_path: Path) -> None:
    program = Path(__file__).with_name("sizes_program.py")
    environment = plugin_environment("shardc", tmp_path, devices=2)
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    sizes = json.loads(done.stdout.splitlines()[-1])
    assert len(sizes) > 50
    ours = {name: struct_size(args_of(name)) for name in sizes}
    if jax.__version_info__ < (0, 11):
        assert ours == sizes
    assert [name for name in sizes if ours[name] > sizes[name]] == []
