"""Steps that call Python: as often, in the order and with the values that `jax.jit` calls with."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

import shardc  # noqa: E402
from shardc import Mesh, P  # noqa: E402
from shardc.analysis.verify import verify_program  # noqa: E402
from shardc.hlo.errors import InputError, RunError, UnsupportedError  # noqa: E402
from shardc.hlo.evaluate import evaluate, evaluate_spmd  # noqa: E402
from shardc.launcher.driver.compiled import Compiled  # noqa: E402
from shardc.stages import programs  # noqa: E402
from tests.frontends.jax.callback_cases import CASES, X, like, random_program  # noqa: E402
from tests.launcher.test_job import mpiexec  # noqa: E402

#: What differs on several devices; `make test-full` has all.
SEVERAL = ("pure", "signs", "while", "cond", "nested", "between")
MESHES = {"one": None, "two": Mesh({"d": 2}), "four": Mesh({"d": 2, "m": 2})}


def by_stages(function: Any, **options: Any) -> Any:
    """`shardc.jit`'s own stages, as they are called in jobs; the plug-in's callbacks have tests of their own."""
    jitted = shardc.jit(function, **options)
    call = partial(_called, jitted)
    call.compiled = jitted.compiled  # type: ignore[attr-defined]
    return call


def _called(jitted: Any, *args: Any) -> Any:
    return jitted.compiled(*args)(*args)


def logged(log: list[Any]) -> Any:
    return lambda *operands: log.append([np.array(o) for o in operands])


def same(got: Any, want: Any) -> None:
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g.astype(np.complex128), w.astype(np.complex128), rtol=1e-5)
        if w.dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(g), np.signbit(w))


def streams(log: list[Any], case: str) -> list[Any]:
    """The calls by the shapes of their operands: between functions JAX keeps no order, nor in some cases at all."""
    if case in ("gradient", "vmapped effects"):
        return sorted(log, key=repr)
    return sorted(log, key=lambda operands: [o.shape for o in operands])


def _cases() -> list[Any]:
    def marks(case: str, devices: str) -> Any:
        return () if devices == "one" or (devices == "four" and case in SEVERAL) else pytest.mark.full

    return [pytest.param(c, d, marks=marks(c, d), id=f"{c}-{d}") for c in CASES for d in MESHES]


@pytest.mark.parametrize(("case", "devices"), _cases())
def test_as_jax_calls(case: str, devices: str) -> None:
    mesh = MESHES[devices]
    ours: list[Any] = []
    theirs: list[Any] = []
    step = by_stages(CASES[case](logged(ours)), mesh=mesh, in_shardings=P("d") if mesh else None)
    want = jax.jit(CASES[case](logged(theirs)))
    for x in (X, X - 4):
        expected = want(x)
        jax.effects_barrier()
        same(step(x), expected)
        same(streams(ours, case), streams(theirs, case))
    assert case == "unused" or ours


def same_order(seed: int) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    want = jax.jit(random_program(seed, logged(theirs)))(X)
    jax.effects_barrier()
    for mesh in (None, Mesh({"d": 2})):
        del ours[:]
        step = by_stages(random_program(seed, logged(ours)), mesh=mesh, in_shardings=P("d") if mesh else None)
        np.testing.assert_array_equal(np.asarray(step(X)), np.asarray(want))
        assert list(map(repr, ours)) == list(map(repr, theirs))


def test_a_scan_along_split_rows_keeps_its_calls() -> None:
    """Calls inside of a function that the scan calls; without them each device would go along its own rows."""
    log: list[Any] = []

    def row(y: Any, row: Any) -> Any:
        io_callback(lambda: log.append(1), None, ordered=True)
        return y, row.sum()

    function = jax.jit(lambda x: jax.lax.scan(jax.jit(row), x, x)[1])
    by_stages(function, mesh=Mesh({"d": 2}), in_shardings=P("d"))(X)
    assert len(log) == len(X)


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_keep_the_order_of_calls(seed: int) -> None:
    same_order(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3, 40))
def test_more_random_programs_keep_the_order_of_calls(seed: int) -> None:
    same_order(seed)


def local_calls(log: list[Any]) -> Any:
    """Devices that call Python as often as they please, between collectives."""
    seen = logged(log)

    def local(x: Any) -> Any:
        jax.debug.callback(seen, x)
        i = lax.axis_index("d")

        def body(k: Any, y: Any) -> Any:
            return jax.pure_callback(lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

        y = lax.fori_loop(0, i + 1, body, jnp.float32(0))
        return lax.psum(y, "d") + lax.cond(i == 1, lambda x: io_callback(lambda x: -x, x, x), lambda x: x, x)

    mesh = Mesh({"d": 4})
    spec = jax.sharding.PartitionSpec("d")
    return mesh, jax.shard_map(local, mesh=mesh.to_jax(), in_specs=spec, out_specs=spec, check_vma=False)


def test_each_device_calls_in_a_manual_computation() -> None:
    log: list[Any] = []
    mesh, f = local_calls(log)
    x = np.arange(8, dtype=np.float32)
    want = x + 10
    want[2:4] = 10 - x[2:4]
    step = by_stages(f, mesh=mesh, in_shardings=P("d"))
    np.testing.assert_array_equal(np.asarray(step(x)), want)
    same(log, [[x[2 * d : 2 * d + 2]] for d in range(4)])
    program = programs.from_function(f, (x,), {}, mesh=mesh, in_shardings=P("d"))
    calls = program.config.custom_calls
    (got,) = evaluate(program.propagate().module, [x], custom_calls=calls)
    np.testing.assert_array_equal(got, want)
    parts = evaluate_spmd(program.partition().module, [[x[2 * d : 2 * d + 2]] for d in range(4)], custom_calls=calls)
    np.testing.assert_array_equal(np.concatenate([p[0] for p in parts]), want)
    same(log, 3 * [[x[2 * d : 2 * d + 2]] for d in range(4)])


def test_the_evaluator_calls_once_for_all_devices() -> None:
    log: list[Any] = []
    program = programs.from_function(CASES["between"](logged(log)), (X,), {}, mesh=Mesh({"d": 2}), in_shardings=P("d"))
    calls, module = program.config.custom_calls, program.partition().module
    (want,) = evaluate(program.module, [X], custom_calls=calls)
    for device in evaluate_spmd(module, [[X[:2]], [X[2:]]], custom_calls=calls):
        np.testing.assert_array_equal(device[0], want)
    same(log[3:], log[:3])


@pytest.mark.parametrize(
    "dtype", ["float8_e5m2", "float8_e8m0fnu", "bfloat16", "float16", "float32", "complex64", "int8"]
)
def test_results_arrive_to_the_bit(dtype: str) -> None:
    bits = np.random.default_rng(7).integers(0, 256, 64 * np.dtype(jnp.dtype(dtype)).itemsize, np.uint8)
    values = bits.view(jnp.dtype(dtype))
    f = lambda x: jax.pure_callback(lambda x: values, like(values), x)  # noqa: E731
    got = np.asarray(by_stages(f, mesh=Mesh({"d": 2, "m": 2}), in_shardings=P("d"))(X))
    np.testing.assert_array_equal(got.view(np.uint8), bits)


def test_shards_are_looked_at_where_they_are() -> None:
    log: list[Any] = []

    def f(x: Any, y: Any) -> Any:
        jax.debug.callback(logged(log), x, y, partitioned=True)
        return x.sum() + y.sum()

    x, y = np.arange(6, dtype=np.float32), np.arange(5, dtype=np.float32)
    step = by_stages(f, mesh=Mesh({"d": 2}), in_shardings=(P("d"), None))
    assert float(np.asarray(step(x, y))) == 25
    same(log, [[x[:3], y], [x[3:], y]])


@pytest.mark.full
def test_devices_call_as_those_of_jax(repository: Path) -> None:
    command = [sys.executable, "-m", "tests.frontends.jax.callback_devices"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["simple", "meeting", "apart", "mixed", "shards", "ordered", "partly"]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "rank"),
    [((), None), (("--fail",), 1), pytest.param(("--fail", "--first"), 0, marks=pytest.mark.full)],
)
def test_ranks(options: tuple[str, ...], rank: int | None, repository: Path) -> None:
    done = mpiexec(
        2, sys.executable, str(repository / "tests/frontends/jax/callback_worker.py"), *options, cwd=repository
    )
    if rank is None:
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["done 0", "done 1"]
    else:
        assert done.returncode == 1
        assert f"[{rank}] error: jax.experimental.io_callback raised ValueError: too large for me" in done.stderr
        assert "callback_worker.py:" in done.stderr


@pytest.mark.parametrize("mesh", [None, Mesh({"d": 2})], ids=["one device", "two"])
def test_what_a_call_raises_ends_the_step(mesh: Mesh | None) -> None:
    troubles: list[BaseException] = []

    def check(x: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return np.asarray(x) + 1

    def f(x: Any) -> Any:
        def body(x: Any, row: Any) -> Any:
            x = jax.pure_callback(check, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
            return x, x.sum() + row

        return lax.scan(body, x, x)

    x = np.arange(4, dtype=np.float32)
    step = by_stages(f, mesh=mesh, in_shardings=P("d") if mesh else None)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(step(x)[0]), x + 4)
        mine = KeyError("mine")
        troubles.append(mine)
        with pytest.raises(RunError, match=r"jax\.pure_callback raised KeyError: 'mine'") as caught:
            step(x)
        assert caught.value.__cause__ is mine
        assert f"test_callbacks.py:{f.__code__.co_firstlineno + 2}" in str(caught.value)
        troubles.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            step(x)


def test_wrong_results_are_told() -> None:
    given: list[Any] = [np.zeros(3, np.float32), np.zeros(4, np.float64), (np.zeros(4, np.float32),) * 2]

    def f(x: Any) -> Any:
        return jax.pure_callback(lambda x: given[0], jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    step = by_stages(f)
    for words in ("Incorrect output shape", None, "Mismatched number of outputs"):
        if words:
            with pytest.raises(RunError, match=words):
                step(np.ones(4, np.float32))
        else:  # as JAX does: 64 bits become 32
            assert not np.asarray(step(np.ones(4, np.float32))).any()
        given.pop(0)


def test_a_step_inside_itself() -> None:
    def again(x: Any) -> Any:
        with pytest.raises(RunError, match="calls a Python function that calls the program again"):
            step(np.asarray(x) + 1)
        return np.asarray(x)

    x = np.ones(2, np.float32)
    step = by_stages(lambda x: jax.pure_callback(again, x, x) + x).compiled(x)
    np.testing.assert_array_equal(np.asarray(step(x)), 2 * x)


def test_another_step_inside() -> None:
    inner = by_stages(lambda x: x @ x.T, mesh=Mesh({"d": 2}), in_shardings=P("d"))

    def f(x: Any) -> Any:
        y = jax.pure_callback(lambda x: np.asarray(inner(np.asarray(x))), jax.ShapeDtypeStruct((4, 4), x.dtype), x)
        return y.sum(0) @ x

    step = by_stages(f, mesh=Mesh({"d": 2}), in_shardings=P("d"))
    np.testing.assert_allclose(np.asarray(step(X)), (X @ X.T).sum(0) @ X)


def test_operands_are_the_callers_to_keep() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(kept.append, x)
        return x * 2 + 1

    step = by_stages(f, donate_argnums=0)
    x = shardc.array(X, (Mesh({"d": 1}), P()))
    for _ in range(3):
        x = step(x)
    want = [X, X * 2 + 1, X * 4 + 3]
    for got, expected in zip(kept, want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_functions_are_those_of_the_call_not_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))

    def made(factor: float) -> Any:
        return by_stages(lambda x: jax.pure_callback(lambda x: np.asarray(x) * np.float32(factor), x, x))

    for factor in (2, 3):
        np.testing.assert_array_equal(np.asarray(made(factor)(X)), X * factor)


def test_tokens_of_jax() -> None:
    """What JAX itself has lowered orders effects by tokens."""
    ours: list[Any] = []
    theirs: list[Any] = []
    for case in ("scan", "nested", "while", "cond"):
        program = shardc.from_jax(jax.jit(CASES[case](logged(ours))).lower(X))
        same(program.compile()(X), jax.jit(CASES[case](logged(theirs)))(X))
        jax.effects_barrier()
    same(streams(ours, ""), streams(theirs, ""))


def noisy(x: Any) -> Any:
    jax.debug.print("{}", x.sum(), ordered=True)
    return jnp.tanh(x @ jax.pure_callback(lambda x: np.asarray(x).T, jax.ShapeDtypeStruct((2, 4), x.dtype), x))


def test_stages_show_calls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = programs.from_function(noisy, (X,), {}, mesh=Mesh({"d": 2}), in_shardings=P("d"))
    partitioned = program.partition()
    text = partitioned.as_text()
    assert text.count("xla_ffi_python_cpu_callback") == 2
    assert 'callback="jax.debug.print"' in text
    reasons = [c["reason"] for c in partitioned.report()["collectives"]]
    assert any("jax.pure_callback" in r and "the first device calls" in r for r in reasons)
    assert "jax.pure_callback" in partitioned.explanation().as_text()
    assert partitioned.simulate("h100-dgx").step_seconds > 0
    partitioned.write_report(tmp_path / "report.html", machine="h100-dgx")
    assert not capsys.readouterr().out
    assert all(row["agrees"] for row in verify_program(program))
    assert len(capsys.readouterr().out.split()) == 3  # the step, and the evaluator in two precisions
    profile = partitioned.compile().profile(X, steps=2)
    assert "callback" in str(profile) or "custom-call" in str(profile)
    again = shardc.load(_written(tmp_path / "noisy.hlo", program.as_text()))
    with pytest.raises(UnsupportedError, match=r"calls back into Python \(jax.debug.print\)"):
        again.partition().compile()
    np.testing.assert_allclose(
        np.asarray(again.with_custom_calls(program.config.custom_calls).compile()(X)), np.tanh(X @ X.T), rtol=1e-5
    )


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_where_there_is_no_python(tmp_path: Path) -> None:
    program = shardc.from_jax(noisy, X)
    for make in (
        lambda: program.compile("cuda-emulated"),
        lambda: program.partition().compile_ahead(tmp_path),
        lambda: program.compile().save(tmp_path / "saved"),
    ):
        with pytest.raises(UnsupportedError, match=r"jax\.debug\.print calls Python") as caught:
            make()
        assert f"test_callbacks.py:{noisy.__code__.co_firstlineno + 1}" in str(caught.value)
    with pytest.raises(InputError, match="its functions are not available in this process"):
        Compiled(program.compile().executable)(X)


def test_checked_steps_with_effects_are_not_compared(monkeypatch: Any, caplog: Any, capsys: Any) -> None:
    monkeypatch.setenv("SHARDC_CHECK", "1")
    np.testing.assert_allclose(np.asarray(by_stages(noisy)(X)), np.tanh(X @ X.T), rtol=1e-5)
    assert "has effects (jax.debug.print): steps are not compared" in caplog.text
    assert capsys.readouterr().out == "28.0\n"


def test_what_is_refused_before_it_runs() -> None:
    mesh = Mesh({"d": 2, "m": 2})
    spec = jax.sharding.PartitionSpec("d")
    like = jax.ShapeDtypeStruct((), np.float32)

    def partly(x: Any) -> Any:
        local = lambda x: x + io_callback(lambda: 0, like)  # noqa: E731
        return jax.shard_map(local, mesh=mesh.to_jax(), in_specs=spec, out_specs=spec, axis_names={"d"})(x)

    def placed(x: Any) -> Any:
        there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return x + jax.pure_callback(lambda: np.float32(1), like, sharding=there)

    def inspected(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=print)
        return x

    for f, words in (
        (partly, "io_callback is not supported in a shard_map over some of the mesh's axes"),
        (placed, "pure_callback with sharding="),
        (inspected, "inspect_array_sharding"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            by_stages(f, mesh=mesh, in_shardings=P("d"))(X)
    np.testing.assert_array_equal(np.asarray(by_stages(placed)(X)), X + 1)
