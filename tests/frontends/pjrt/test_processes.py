"""Jobs of several processes under the plug-in: unmodified scripts, the bits of virtual devices, and how jobs end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from plugin_jobs import SECONDS, free_port, mpiexec, start

pytest.importorskip("jax")

FOLDER = Path(__file__).parent
SCRIPT = str(FOLDER / "processes_program.py")


def seen(processes: Sequence[subprocess.Popen[str]]) -> dict[str, object]:
    """What the script saw in the process 0 of a job."""
    told = [p.communicate(timeout=SECONDS) for p in processes]
    assert [p.returncode for p in processes] == [0] * len(told), "\n".join(out + err for out, err in told)
    line = next(x for x in told[0][0].splitlines() if x.startswith("{"))
    found: dict[str, object] = json.loads(line)
    return found


def test_jobs_have_the_bits_of_virtual_devices(tmp_path: Path) -> None:
    """Arrays, collectives, training and calls of Python: in one process, in MPI ranks, and under jax.distributed
    without MPI."""
    pytest.importorskip("mpi4py")
    alone = seen([start([SCRIPT], tmp_path, 4)])
    ranks = seen([start(mpiexec(2, SCRIPT), tmp_path, 2)])
    port = str(free_port())
    told = seen([start([SCRIPT, port, "2", str(n)], tmp_path, 2) for n in range(2)])
    assert (alone["processes"], alone["ids"]) == (1, [0, 1, 2, 3])
    for job in (ranks, told):
        assert (job["processes"], job["ids"], job["of"]) == (2, [0, 1, 2, 3], [0, 0, 1, 1])
        assert job["ranks"] == [0, 1]
        assert [k for k, v in job.items() if k not in ("processes", "of", "ranks") and v != alone[k]] == []


UNTOLD = """
import sys
import jax
jax.distributed.initialize()
sys.stdout.write(f"{jax.process_index()} of {jax.process_count()}, {len(jax.devices())} devices\\n")
"""


def test_initialize_finds_the_ranks_of_a_job(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    out, err = (job := start(mpiexec(2, "-c", UNTOLD), tmp_path)).communicate(timeout=SECONDS)
    assert job.returncode == 0, err
    assert sorted(out.splitlines()) == ["0 of 2, 2 devices", "1 of 2, 2 devices"]


PROFILED = """
import sys
import jax, jax.numpy as jnp, numpy as np, shardc
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), "x")
state = {"w": np.ones((8, 8), np.float32), "b": np.ones(8, np.float32)}
state = jax.tree.map(lambda v: jax.device_put(v, NamedSharding(mesh, P("x"))), state)
x = jax.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P("x")))

@jax.jit
def step(state, x):
    return jnp.tanh(x @ state["w"] + state["b"]).sum()

step(state, x).block_until_ready()
compiled = shardc.last_compiled("step")
profile = compiled.profile(*jax.tree.leaves((state, x)), steps=2)
told = ""
try:
    compiled.profile(state, x)
except shardc.ShardcError as error:
    told = str(error).splitlines()[0]
sys.stdout.write(f"{len(profile.all_steps)} {len(profile.rows) > 0} {told}\\n")
"""


def test_a_program_of_a_job_is_profiled_on_arrays_that_span_it(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    out, err = (job := start(mpiexec(2, "-c", PROFILED), tmp_path)).communicate(timeout=SECONDS)
    assert job.returncode == 0, err
    assert out.splitlines() == ["2 True jit_step takes 3 flat arguments, but was given 2"] * 2


FAILING = """
import os, signal, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

me, how = jax.process_index(), sys.argv[1]
mesh = Mesh(np.array(jax.devices()), "x")
x = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, P("x")))
f = jax.jit(lambda v: v * v.sum())
f(x).block_until_ready()
sys.stdout.write(f"ready {me}\\n")  # one write: pieces of print mix with those of the other rank
sys.stdout.flush()
if me == 1:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise ValueError("rank 1 has a problem")
    if how == "skip":
        jax.jit(lambda v: v / v.max())(x).block_until_ready()
while how != "end":
    f(x).block_until_ready()
"""

#: How a job fails -> what is said of it.
WORDS = {
    "kill": r"rank 1 \(pid \d+ on .*\): it died",
    "raise": r"\[1\] ValueError: rank 1 has a problem",
    "skip": r"JaxRuntimeError: INTERNAL: .*(reached another collective than the|wait for each other at different)",
}


@pytest.mark.parametrize("how", WORDS)
def test_a_failing_rank_ends_the_job(how: str, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    job = start(mpiexec(2, "-c", FAILING, how), tmp_path, SHARDC_TIMEOUT="60")
    out, err = job.communicate(timeout=SECONDS)
    assert job.returncode == 1, out + err
    assert re.search(WORDS[how], err), out + err


def test_an_interrupt_ends_the_job(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    job = start(mpiexec(2, "-c", FAILING, "interrupt"), tmp_path)
    assert job.stdout is not None
    ready: set[str] = set()
    while len(ready) < 2:
        line = job.stdout.readline()
        assert line, job.communicate(timeout=SECONDS)
        ready |= set(re.findall(r"ready (\d)", line))
    begin = time.monotonic()
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=SECONDS)
    assert (job.returncode, "interrupted" in err) == (130, True), err
    assert time.monotonic() - begin < 30


#: Ends while steps run that nobody waits for: one of all ranks, and others of each.
UNAWAITED = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
xs = jax.device_put(np.ones((8, 8)), NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d")))
@jax.jit
def long(x):
    for i in range(120):
        x = jax.numpy.sin(x) * i
    return x
jax.jit(lambda x: x.sum())(xs)
long(np.ones(4))
jax.jit(lambda x: x + 1)(np.ones(4))
"""


def test_ranks_end_after_steps_that_nobody_waits_for(tmp_path: Path) -> None:
    """What these steps need is given back by exit handlers, which must not run before."""
    pytest.importorskip("mpi4py")
    for _ in range(3):
        job = start(mpiexec(2, "-c", UNAWAITED), tmp_path)
        _, said = job.communicate(timeout=SECONDS)
        assert job.returncode == 0, said
