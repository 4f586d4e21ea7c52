"""What ran through the plug-in can be looked into: `shardc.last_compiled`, and pages for SHARDC_REPORT_TO."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as JaxP
from plugin_environment import plugin_environment

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError
from shardc.launcher.driver.compiled_programs import CompiledPrograms, KnownProgram, compiled_programs
from shardc.stages.last_compiled import ReportFolder

MESH = Mesh({"data": 4})
W, X = np.ones((8, 6), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8) / 32


def test_the_newest_program_is_found_by_its_name() -> None:
    def summed(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w).sum()

    def doubled(x: Any) -> Any:
        return x * 2

    # A plain function of JAX, over devices of shardc: nothing in it is ours.
    mesh = shardc.jit(doubled, mesh=MESH, in_shardings=P("data"))(X).sharding.mesh
    jax.jit(summed)(W, jax.device_put(X, NamedSharding(mesh, JaxP("data"))))
    found = shardc.last_compiled("summed")
    report = found.partitioned().report()
    (collective,) = report["collectives"]
    assert collective["op"] == "all-reduce" and collective["source"].startswith(__file__)
    assert report["devices"] == 4 and [p["name"] for p in report["parameters"]] == ["w", "x"]
    assert "contracted" in (text := found.partitioned().explanation().as_text()) or "reduced" in text
    (again,) = found.run([W, X])
    np.testing.assert_allclose(np.asarray(again), np.tanh(X @ W).sum(), rtol=1e-5)
    assert found.profile(W, X, steps=2).rows
    assert shardc.last_compiled("jit_dou*").partitioned().report()["collectives"] == []
    with pytest.raises(InputError, match=r"no program named nothing was compiled[\s\S]*jit_summed"):
        shardc.last_compiled("nothing")


def uneven(x: Any) -> Any:
    return jnp.cumsum(x, axis=0)


def of_arrays(x: Any) -> Any:
    return (x * x).sum()


def of_numpy(x: Any) -> Any:
    x[0] = 1  # JAX has no such assignment
    return x.sum()


@pytest.mark.parametrize("function", [uneven, of_arrays, of_numpy])
def test_programs_that_jax_does_not_run_are_found_too(function: Callable[[Any], Any]) -> None:
    layout = P("data")
    out = layout if function is uneven else P()
    jitted = shardc.jit(function, mesh=MESH, in_shardings=layout, out_shardings=out)
    x = np.ones((5 if function is uneven else 8, 2), np.float32)
    jitted(shardc.array(x, (MESH, layout)) if function is of_arrays else x)
    found = shardc.last_compiled(function.__name__)
    assert found.partitioned().report()["devices"] == 4
    assert found.partitioned().explanation().collectives
    (again,) = found.run([x])
    np.testing.assert_allclose(np.asarray(again), function(x.copy()), rtol=1e-6)


def on_four_devices(function: Callable[[Any], Any]) -> KnownProgram:
    """``function`` as the newest program: no test needs another one to run before."""
    shardc.jit(function, mesh=MESH, in_shardings=P("data"))(X)
    newest = next(iter(compiled_programs()))
    assert newest.executable.num_devices == 4
    return newest


def test_small_programs_of_one_device_are_passed_over() -> None:
    kept = CompiledPrograms()
    several = on_four_devices(lambda x: x.sum())
    shardc.jit(lambda x: x + 1)(X)
    assert next(iter(compiled_programs())) is several
    seen: list[Any] = []
    kept.watch(seen.append)
    for _ in range(100):
        kept.add(several)
    assert len(seen) == 100 and 8 < len(list(kept)) < 100


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = on_four_devices(lambda x: x.sum())
    file = tmp_path / "file"
    file.write_text("")
    ReportFolder(file).add(compiled)
    assert "SHARDC_REPORT_TO: no report of" in caplog.text


def test_a_program_has_one_page_and_small_ones_without_a_collective_have_none(tmp_path: Path) -> None:
    folder = ReportFolder(tmp_path)
    with_collective = on_four_devices(lambda x: x.sum())
    without = on_four_devices(lambda x: x * 3)
    assert without.is_small and with_collective.is_small
    for _ in range(2):
        folder.add(with_collective)
        folder.add(without)
    assert len(list(tmp_path.iterdir())) == 2


SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

@jax.jit
def step(w, x):
    return jnp.tanh(x @ w).sum()

mesh = jax.make_mesh((4,), ("data",))
x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("data")))
print(float(step(np.ones((8, 8), np.float32), x)), len(jax.devices()), jax.devices()[0].device_kind)
jnp.arange(3) + 1
"""


def test_an_unmodified_script_leaves_reports(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = plugin_environment(
        "shardc", tmp_path, SHARDC_REPORT_TO=str(tmp_path / "reports"), SHARDC_NUM_DEVICES="4"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    loss, devices, kind = done.stdout.split()
    assert float(loss) == pytest.approx(64 * np.tanh(8.0), rel=1e-5) and (devices, kind) == ("4", "shardc")
    written = sorted(p.name for p in (tmp_path / "reports").iterdir())
    page, data = (next(n for n in written if n.endswith(f"-jit_step.{form}")) for form in ("html", "json"))
    assert "all-reduce" in (tmp_path / "reports" / page).read_text()
    (collective,) = json.loads((tmp_path / "reports" / data).read_text())["collectives"]
    assert collective["source"] == f"{script}:7"
    assert not [n for n in written if "add" in n or "iota" in n]


RANKS = """
import sys, numpy as np, jax, shardc
step = shardc.jit(lambda x: x @ x.T, mesh=shardc.Mesh({"d": 2}), in_shardings=shardc.P("d"), out_shardings=shardc.P())
result = step(np.arange(16, dtype=np.float32).reshape(4, 4))
sys.stdout.write(f"{isinstance(result, jax.Array)} {float(np.asarray(result).sum())} {len(jax.devices())}\\n")
"""


@pytest.mark.mpi
def test_ranks_without_the_plugin_report_too(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS.replace("float(np.asarray(result).sum())", "shardc.last_compiled().executable.name"))
    environment = plugin_environment("cpu", tmp_path, SHARDC_REPORT_TO=str(tmp_path / "reports"))
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False jit__lambda 1"] * 2
    assert sorted(p.suffix for p in (tmp_path / "reports").iterdir()) == [".html", ".json"]


@pytest.mark.mpi
def test_ranks_share_a_program_and_one_reports(tmp_path: Path) -> None:
    """Arguments of NumPy are global values, and results JAX's."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    environment = plugin_environment("shardc", tmp_path, SHARDC_REPORT_TO=str(tmp_path / "reports"))
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert done.stdout.splitlines() == [f"True {float((x @ x.T).sum())} 2"] * 2
    assert sorted(p.suffix for p in (tmp_path / "reports").iterdir()) == [".html", ".json"]
