"""Python that programs call, under the plug-in as on JAX's own CPU backend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plugin_environment import plugin_environment

pytest.importorskip("jax")

FOLDER = Path(__file__).parent


def run(script: str | Path, environment: dict[str, str], *, code: int = 0) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(script)] if isinstance(script, Path) else [sys.executable, "-c", script]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_callbacks_as_on_xla(tmp_path: Path) -> None:
    """Whole values, each device's own, ordered, in loops and branches, vmapped, nested, failing, from threads."""
    found: list[dict[str, Any]] = []
    for platform in ("shardc", "cpu"):
        done = run(FOLDER / "callback_program.py", plugin_environment(platform, tmp_path, 4))
        found.append(json.loads(done.stdout.splitlines()[-1]))
        assert "x is [0. 1.] and float32" in done.stdout
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    assert {k: v for k, v in ours.items() if v != theirs[k]} == {}


ALONE = """
import jax, jax.numpy as jnp
from jaxlib import xla_client
f = jax.jit(lambda x: jax.pure_callback(lambda v: v + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
x = jnp.float32(3)
data = f.lower(x).compile().runtime_executable().serialize()
client, devices = jax.devices()[0].client, xla_client.DeviceList((jax.devices()[0],))

def run(**functions):
    made = client.deserialize_executable(data, devices, **functions).execute_sharded([x])
    return float(made.disassemble_into_single_device_arrays()[0][0])

assert run(host_callbacks=[lambda v: (v + 5,)]) == 8
try:
    run()
except Exception as error:
    print(type(error).__name__, error)

@jax.jit
def again(x):
    return jax.pure_callback(lambda v: again(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x)

try:
    again(x).block_until_ready()
except Exception as error:
    print(type(error).__name__, error)
assert float(jax.jit(lambda x: x * 2)(x)) == 6
"""


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    """Bytes hold no functions, who loads them gives some; a program that calls itself without end is refused."""
    told = run(ALONE, plugin_environment("shardc", tmp_path)).stdout
    assert "JaxRuntimeError" in told
    assert "its functions are not available in this process" in told
    assert "64 deep" in told


CAUGHT = """
import sys
import jax, jax.numpy as jnp
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec

def fail(*given):
    raise ZeroDivisionError("none")

F32 = jax.ShapeDtypeStruct((), jnp.float32)
FUNCTIONS = {
    "pure": lambda x: jax.pure_callback(fail, F32, x.sum()),
    "io": lambda x: io_callback(fail, F32, x.sum()),
    "ordered": lambda x: io_callback(fail, F32, 1.0, ordered=True),
    "debug": lambda x: (jax.debug.callback(fail, x.sum()), x + 1)[1],
    "nothing": lambda x: jax.debug.callback(fail, x.sum()),
}
mesh = jax.make_mesh((len(jax.devices()),), ("x",))
whole = jnp.ones(8)
parts = jax.device_put(whole, NamedSharding(mesh, PartitionSpec("x")))
for name, function in FUNCTIONS.items():
    raised = []
    for x in (whole, parts):
        if x is whole or (name != "ordered" and jax.process_count() == 1):
            try:
                jax.jit(function)(x)
            except jax.errors.JaxRuntimeError as error:
                raised.append("ZeroDivisionError: none" in str(error))
    jax.effects_barrier()
    sys.stdout.write(f"{name} {all(raised) and len(raised) > 0}\\n")
sys.stdout.write(f"{float(jax.jit(lambda x: jax.pure_callback(lambda v: v * 2, F32, x))(1.0))}\\n")
"""


@pytest.mark.parametrize(("devices", "ranks"), [(1, 1), (4, 1), pytest.param(1, 2, marks=pytest.mark.mpi)])
def test_what_a_function_raised_is_raised_once(devices: int, ranks: int, tmp_path: Path) -> None:
    """By the call, as under XLA on one device: neither barriers nor the process's end raise it again."""
    line = [sys.executable, "-c", CAUGHT]
    if ranks > 1:
        line = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks), *line]
    environment = plugin_environment("shardc", tmp_path, devices)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = [f"{name} True" for name in ("pure", "io", "ordered", "debug", "nothing")] + ["2.0"]
    assert sorted(done.stdout.splitlines()) == sorted(expected * ranks)
    assert "atexit" not in done.stderr


ENDING = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

def fail(*given):
    raise ZeroDivisionError("none")

mesh = jax.make_mesh((len(jax.devices()),), ("x",))
x = jax.device_put(jnp.ones(8), NamedSharding(mesh, PartitionSpec("x")))
try:
    jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((8,), jnp.float32), x))(x).block_until_ready()
finally:
    print("went on")
"""


@pytest.mark.mpi
def test_an_exception_that_other_ranks_wait_for_ends_the_job(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, "-c", ENDING]
    environment = plugin_environment("shardc", tmp_path, 1)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "went on" not in done.stdout
    assert "[0] error: jax.pure_callback raised ZeroDivisionError: none" in done.stderr


INTERRUPTED = """
import signal, threading, time
import jax, jax.numpy as jnp

let_go = threading.Event()

def host(v):
    signal.raise_signal(signal.SIGINT)  # as from a terminal: the main thread is in its call
    assert let_go.wait(60), "the call has not ended"
    return v

f = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float32), x))
try:
    f(jnp.float32(3)).block_until_ready()
except KeyboardInterrupt:
    print("interrupted")
let_go.set()
"""


def test_an_interrupt_ends_a_call_that_waits_for_python(tmp_path: Path) -> None:
    assert run(INTERRUPTED, plugin_environment("shardc", tmp_path)).stdout == "interrupted\n"
