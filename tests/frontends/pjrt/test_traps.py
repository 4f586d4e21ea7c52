"""What ends a process badly when a plug-in is written in Python does not: each trap in a process of its own.

XLA:CPU stands all but two of them: it ends badly in a forked process that exits, and no interrupt reaches its step.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plugin_environment import plugin_environment

pytest.importorskip("jax")

PROGRAM = """
import gc, os, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from functools import partial
f = jax.jit(lambda x: x * 2 + 1)
x = jnp.arange(64, dtype=jnp.float32)
"""

EXCEPTIONS = """
class Dies:
    def __init__(self, value): self.value = value
    def __del__(self):
        del self.value

def broken():
    y = f(x)
    z = Dies(f(y))
    raise ValueError(float(z.value[1]))

def generated():
    y = f(x)
    try:
        yield y
    finally:
        del y

rounds = int(sys.argv[1])
for i in range(rounds):
    try:
        (f(x), 1 // 0)
    except ZeroDivisionError:
        pass
    try:
        [f(x), f(x)[{}]]
    except IndexError as e:
        assert e.__traceback__ is not None
    if i % 100 == 0:
        try:
            broken()
        except ValueError as e:
            assert e.args == (7.0,), e.args
        for y in generated():
            break
    try:
        next(iter(())), f(x)
    except StopIteration:
        pass
np.testing.assert_array_equal(f(x), np.arange(64) * 2 + 1)
print("done")
"""

ALIVE_AT_EXIT = """
mesh = jax.make_mesh((4,), ("a",))
split = jax.device_put(x, jax.NamedSharding(mesh, jax.P("a")))
keep = [f(x), f(split), split, split.addressable_shards, f.lower(x).compile(), jax.devices()[0], np.asarray(f(x))]
keep.append(keep)
class Late:
    def __init__(self): self.values = [f(x), f(split)]
    def __del__(self): self.values[0] + 1 if sys is not None and not sys.is_finalizing() else None
late = Late()
late.self = late
sys.keep = keep
local = threading.local()
local.value = f(x)
threading.Thread(target=lambda: (time.sleep(100), f(x)), daemon=True).start()
@partial(jax.jit, static_argnums=1)
def slow(x, n):
    return jax.lax.fori_loop(0, n, lambda i, y: jnp.sin(y) @ y, x)
pending = slow(jnp.ones((64, 64)), 200)
print("done")
"""

THREADS = """
mesh = jax.make_mesh((4,), ("a",))
split = jax.device_put(x, jax.NamedSharding(mesh, jax.P("a")))
donating = jax.jit(lambda a: a + 1, donate_argnums=0)
shared, errors = [f(x), f(split)], []
want = np.arange(64) * 2 + 1

def work(seed):
    rng = np.random.default_rng(seed)
    try:
        for _ in range(150):
            kind = rng.integers(6)
            source = shared[int(rng.integers(2))]
            if kind == 0:
                np.testing.assert_array_equal(np.asarray(source), want)
            elif kind == 1:
                np.testing.assert_array_equal(f(source), want * 2 + 1)
            elif kind == 2:
                own = source + 0
                np.testing.assert_array_equal(donating(own), want + 1)
                assert own.is_deleted()
            elif kind == 3:
                np.testing.assert_array_equal(jax.device_put(source, jax.devices()[int(rng.integers(4))]), want)
            elif kind == 4:
                size = int(rng.integers(1, 9))
                np.testing.assert_array_equal(jax.jit(lambda a: a.sum(), inline=bool(size % 2))(jnp.ones(size)), size)
            else:
                del source
                shared[int(rng.integers(2))] = f(x) if rng.integers(2) else f(split)
    except BaseException as e:
        errors.append(e)
        raise

threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
print("done")
"""

FORKS = """
import warnings
warnings.simplefilter("ignore")
y = f(x)
for way in ("leaves", "exits", "raises"):
    child = os.fork()
    if child == 0:
        held = np.arange(10).sum()
        del y
        gc.collect()
        if way == "leaves":
            os._exit(3)
        if way == "raises":
            sys.stderr = open(os.devnull, "w")
            raise SystemError("as meant")
        sys.exit(4)
    end = time.monotonic() + 20
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid: break
        if time.monotonic() > end:
            os.kill(child, 9); os.waitpid(child, 0)
            sys.exit(f"the forked process that {way} hangs")
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(status) == {"leaves": 3, "exits": 4, "raises": 1}[way], (way, status)
    np.testing.assert_array_equal(f(y), (np.arange(64) * 2 + 1) * 2 + 1)
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(len, ["a", "ab", "abc"]) == [1, 2, 3]
np.testing.assert_array_equal(f(y), (np.arange(64) * 2 + 1) * 2 + 1)
print("done")
"""

LEAKS = """
import resource
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

mesh = jax.make_mesh((4,), ("a",))
split = jax.device_put(jnp.ones((64, 64)), jax.NamedSharding(mesh, jax.P("a")))
donating, big = jax.jit(lambda a: a + 1, donate_argnums=0), jnp.ones((256, 256))
def round():
    global big
    for _ in range(1250):
        f(x)
        f(split).sum()
        big = donating(big)
        np.asarray(f(x))
        jax.device_put(np.ones(1000, np.float32))
    big.block_until_ready()
    gc.collect()
round()
before = resident()
round()
grown = resident() - before
assert grown < 12 << 20, f"{grown / 2**20:.1f} MiB more after 1,250 more rounds of calls"
print("done")
"""

CLEARED = """
for n in range(5):
    y = f(x)
    g = jax.jit(lambda a: a + n)
    z = g(y)
    jax.clear_caches()
    np.testing.assert_array_equal(z, np.arange(64) * 2 + 1 + n)
    np.testing.assert_array_equal(g(y), np.arange(64) * 2 + 1 + n)
    y.delete()
    try:
        g(y)
    except RuntimeError as e:
        assert "deleted" in str(e), e
    else:
        sys.exit("a deleted array was taken")
print("done")
"""

#: What the main thread is at when the user interrupts it: ``wait`` begins it, some of it was done before.
INTERRUPTED = {
    "step": """
@jax.jit
def long(x):
    return jax.lax.while_loop(lambda s: s[0] < 2_000_000_000, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]
run = long.lower(x).compile()
def wait():
    run(x).block_until_ready()
""",
    "calls that wait for each other": """
@jax.jit
def long(x):
    return jax.lax.while_loop(lambda s: s[0] < 20_000, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]
def wait():
    y = x
    while True:
        y = long(y)
""",
    "compilation": """
def long(x):
    for n in range(1000):
        x = jnp.sort(jnp.sin(x) * n, axis=0)[::-1] + jnp.cumsum(x)
    return x
lowered = jax.jit(long).lower(x)
def wait():
    lowered.compile()
""",
    "callback": """
def slow(v):
    for _ in range(40):  # at its end JAX waits for callbacks
        time.sleep(0.1)
    return v
run = jax.jit(lambda x: jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1).lower(x).compile()
def wait():
    run(x).block_until_ready()
""",
}
INTERRUPT = """
import os, signal, threading, time
sent = []
def interrupt():
    time.sleep(0.7)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    wait()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - sent[0], flush=True)
"""


#: NumPy arrays over the memory of JAX's, which Python ends in a cycle, after the client.
SHARED_AT_EXIT = """
import sys
class Cycle:
    pass
cycle = Cycle()
cycle.self, cycle.kept = cycle, [np.asarray(jnp.arange(1000.0) + k) for k in range(50)]
sys.modules["__main__"].__dict__["kept"] = cycle
del cycle
print("done")
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    return plugin_environment("shardc", folder, devices=4, **more)


def run_script(text: str, folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM + text, *words],
        env=environment(folder), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "done"), f"code {done.returncode}\n{done.stderr[-6000:]}"
    assert "Exception ignored" not in done.stderr and "Fatal" not in done.stderr, done.stderr[-6000:]


def test_destructors_run_while_exceptions_are_pending(tmp_path: Path) -> None:
    run_script(EXCEPTIONS, tmp_path, "1000")


@pytest.mark.full
def test_destructors_run_while_exceptions_are_pending_10000_times(tmp_path: Path) -> None:
    run_script(EXCEPTIONS, tmp_path, "10000")


@pytest.mark.parametrize(
    "script",
    [ALIVE_AT_EXIT, THREADS, FORKS, LEAKS, CLEARED],
    ids=["alive at exit", "threads", "forks", "leaks", "cleared"],
)
def test_trap(script: str, tmp_path: Path) -> None:
    run_script(script, tmp_path)


def test_numpy_arrays_outlive_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library writes over memory that is freed, so that nobody can go on to use it by chance."""
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    run_script(SHARED_AT_EXIT, tmp_path)


@pytest.mark.parametrize("doing", INTERRUPTED)
def test_an_interrupt_arrives_soon(doing: str, tmp_path: Path) -> None:
    """As a KeyboardInterrupt in the main thread, and the process then ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + "import time\n" + INTERRUPTED[doing] + INTERRUPT],
        env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said, _, seconds = done.stdout.partition(" ")
    assert (said, done.returncode) == ("interrupted", 0), f"{done.stdout}\n{done.stderr[-6000:]}"
    assert float(seconds) < 1.0
