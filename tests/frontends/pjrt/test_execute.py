"""Execute, its queue and its worker, without JAX above them: order, donation, errors, threads, calls of Python."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.frontends.pjrt.native.records import DONATED, LIVE
from shardc.hlo.text.reader import read_hlo
from tests.frontends.pjrt.native_programs import Buffer, NativeError, Program, devices, native, put

jax = pytest.importorskip("jax")

#: Nanoseconds of a step that is left to the worker.
LONG = 1 << 40


def program(function: Any, *args: Any, donate: tuple[int, ...] = (), shardings: Any = None) -> Program:
    given = {} if shardings is None else {"in_shardings": shardings[0], "out_shardings": shardings[1]}
    made = shardc.from_jax(jax.jit(function, donate_argnums=donate, **given), *args)
    return Program(made.propagate().partition().compile("cpu"))


def mesh(size: int) -> Any:
    return shardc.Mesh({"d": size}).to_jax()


def on_mesh(size: int, *axes: Any) -> Any:
    return jax.sharding.NamedSharding(mesh(size), jax.sharding.PartitionSpec(*axes))


def slow(x: Any) -> Any:
    """Some milliseconds."""
    return jax.lax.fori_loop(0, 200_000, lambda _, v: v * 0.5 + 1, x)


X = np.arange(8, dtype=np.float32)


@pytest.fixture(scope="module")
def doubled() -> Program:
    return program(lambda x: x * 2 + 1, X)


def test_results_are_those_of_the_driver_at_once_and_in_the_queue() -> None:
    values = [np.random.default_rng(k).normal(size=(64, 64)).astype(np.float32) for k in range(2)]
    both = program(lambda a, b: (jax.numpy.tanh(a @ b), (a - b).sum(0)), *values)
    expected = [np.asarray(r) for r in both.compiled.run(values)]
    for nanoseconds in (0, 1, LONG):
        both.set_expected(nanoseconds)
        (made,) = both([put(0, v) for v in values])
        for result, right in zip(made, expected, strict=True):
            np.testing.assert_array_equal(result.read(), right)


@pytest.mark.parametrize("nanoseconds", [0, 1])
def test_devices_share_what_they_compute_alike(nanoseconds: int) -> None:
    size = 4
    step = program(
        lambda x, w: (x * w.sum(), (x**2).sum()), X, X,
        shardings=((on_mesh(size, "d"), on_mesh(size)), (on_mesh(size, "d"), on_mesh(size))),
    )  # fmt: skip
    expected = [np.asarray(r) for r in step.compiled.run([X, X])]
    step.set_expected(nanoseconds)
    made = step(*([put(d, X[2 * d : 2 * d + 2]), put(d, X)] for d in range(size)))
    np.testing.assert_array_equal(np.concatenate([row[0].read() for row in made]), expected[0])
    for row in made:
        np.testing.assert_array_equal(row[1].read(), expected[1])
    assert len({row[0].data for row in made}) == size
    assert len({row[1].data for row in made}) == 1


def test_steps_run_in_the_order_in_which_they_were_asked_for(doubled: Program) -> None:
    wait, expected = program(slow, X), X
    wait.set_expected(LONG)
    doubled.set_expected(1)
    (held,) = wait([put(0, X)])
    value = held[0]
    for _ in range(20):
        ((value,),) = doubled([value])
    expected = held[0].read()
    for _ in range(20):
        expected = expected * np.float32(2) + np.float32(1)
    np.testing.assert_array_equal(value.read(), expected)


@pytest.mark.parametrize("nanoseconds", [1, LONG])
def test_donated_memory_is_used_again(nanoseconds: int) -> None:
    step = program(lambda x: x + 1, X, donate=(0,))
    step.set_expected(nanoseconds)
    value = put(0, X)
    place = value.data
    for _ in range(50):
        ((following,),) = step([value])
        assert value.state == DONATED
        value = following
        assert value.data == place
    np.testing.assert_array_equal(value.read(), X + 50)


def test_donated_memory_that_somebody_else_sees_stays_as_it_is() -> None:
    step = program(lambda x: x + 1, X, donate=(0,))
    for nanoseconds in (1, LONG):
        step.set_expected(nanoseconds)
        value = put(0, X)
        native().keep_block(_address(value))
        shared = put(0, X, block=_address(value))
        ((made,),) = step([value])
        assert made.data != shared.data
        np.testing.assert_array_equal(made.read(), X + 1)
        np.testing.assert_array_equal(shared.read(), X)
        viewed = put(0, X)
        native().keep_block(_address(viewed))  # as a view from outside has it
        place = viewed.data
        ((made,),) = step([viewed])
        assert made.data != place


def _address(buffer: Buffer) -> int:
    import ctypes

    return ctypes.addressof(buffer.record.block)


def test_arguments_that_the_caller_keeps_are_not_donated() -> None:
    step = program(lambda x: x + 1, X, donate=(0,))
    step.set_expected(1)
    value = put(0, X)
    ((made,),) = step([value], kept=[0])
    assert value.state == LIVE
    assert made.data != value.data
    np.testing.assert_array_equal(value.read(), X)


@pytest.mark.parametrize("nanoseconds", [1, LONG])
def test_an_array_is_donated_once(doubled: Program, nanoseconds: int) -> None:
    step = program(lambda x, y: (x + 1, y + 2), X, X, donate=(0, 1))
    step.set_expected(nanoseconds)
    value = put(0, X)
    with pytest.raises(NativeError, match="donate the same buffer twice"):
        step([value, value])
    ((made, _),) = step([value, put(0, X)])
    np.testing.assert_array_equal(made.read(), X + 1)
    with pytest.raises(NativeError, match="deleted or donated"):
        step([value, put(0, X)])
    with pytest.raises(NativeError, match="deleted or donated"):
        doubled([value])


@pytest.mark.parametrize("nanoseconds", [1, LONG])
def test_a_call_that_is_refused_leaves_donated_arrays_as_they_are(doubled: Program, nanoseconds: int) -> None:
    step = program(lambda x, y, z: (x + 1, y + z), X, X, X, donate=(0, 1))
    step.set_expected(nanoseconds)
    value, gone = put(0, X), put(0, X)
    gone.delete()
    for others, message in (
        ([put(0, X), gone], "deleted or donated"),
        ([put(0, X), put(0, X[:3])], "fewer bytes"),
        ([value, put(0, X)], "donate the same buffer twice"),
        ([put(0, X), value], "donate the same buffer twice"),
    ):
        with pytest.raises(NativeError, match=message):
            step([value, *others])
        assert value.state == LIVE
        assert all(b.state == LIVE for b in others if b is not gone)
        np.testing.assert_array_equal(value.read(), X)
    pieces = native().pieces_in_use()
    with pytest.raises(NativeError, match="donate the same buffer twice"):
        step([value, value, value])
    assert native().pieces_in_use() == pieces
    ((made, total),) = step([value, put(0, X), put(0, X)])
    np.testing.assert_array_equal(made.read(), X + 1)
    np.testing.assert_array_equal(total.read(), X + X)
    assert value.state == DONATED


def test_wrong_counts_and_sizes_are_errors(doubled: Program) -> None:
    with pytest.raises(NativeError, match="number of arguments"):
        doubled([put(0, X), put(0, X)])
    with pytest.raises(NativeError, match="number of devices"):
        doubled([put(0, X)], [put(1, X)])
    with pytest.raises(NativeError, match="fewer bytes"):
        doubled([put(0, X[:3])])


def test_a_failed_step_fails_what_reads_its_results_and_nothing_else(doubled: Program) -> None:
    fails = _checked()
    for nanoseconds in (1, LONG):
        doubled.set_expected(nanoseconds)
        fails.set_expected(nanoseconds)
        ((bad,),) = fails([put(0, X), put(0, X + 1)])
        ((worse,),) = doubled([bad])
        ((good,),) = doubled([put(0, X)])
        np.testing.assert_array_equal(good.read(), X * 2 + 1)
        for buffer in (bad, worse):
            with pytest.raises(NativeError, match=r"check\.expect_eq is false"):
                buffer.read()


CHECKED = """HloModule checked
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  c = () custom-call(x, y), custom_call_target="check.expect_eq", custom_call_has_side_effect=true,
    metadata={op_name="main" source_file="model.py" source_line=7}
  ROOT z = f32[8] add(x, y)
}
"""


@pytest.mark.parametrize("nanoseconds", [1, LONG])
def test_false_checks_name_their_line_and_the_next_step_runs(nanoseconds: int) -> None:
    step = _checked()
    for _ in range(2):
        step.set_expected(nanoseconds)
        ((bad,),) = step([put(0, X), put(0, X + 1)])
        with pytest.raises(NativeError, match=r"check.expect_eq is false(.|\n)*model.py:7"):
            bad.read()
        ((good,),) = step([put(0, X), put(0, X)])
        np.testing.assert_array_equal(good.read(), X + X)


def _checked() -> Program:
    return Program(shardc.Program(read_hlo(CHECKED)).propagate().partition().compile("cpu"))


def test_5000_calls_keep_no_memory(doubled: Program) -> None:
    device = devices()[0][0]
    value = put(0, X)
    before = device.bytes_in_use.load("relaxed")
    for k in range(5000):
        if k % 100 == 0:
            doubled.set_expected((1, LONG)[k // 100 % 2])
        ((made,),) = doubled([value])
    made.read()
    del made
    end = time.monotonic() + 10
    while device.bytes_in_use.load("relaxed") != before and time.monotonic() < end:
        time.sleep(0.01)  # the worker gives up its references a little later
    assert device.bytes_in_use.load("relaxed") == before


def test_threads_share_arrays(doubled: Program) -> None:
    wait = program(slow, X)
    value = put(0, X)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for k in range(200):
            step = doubled
            step.set_expected((0, 1, LONG)[(seed + k) % 3])
            ((made,),) = step([value])
            if not np.array_equal(made.read(), X * 2 + 1):
                wrong.append(made.read())
            if k % 50 == seed:
                wait([value])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong
    assert not any(t.is_alive() for t in threads)


def test_python_that_is_called_may_run_programs_and_wait(doubled: Program) -> None:
    """Also for what is still in the queue when it is called."""
    wait = program(slow, X)
    wait.set_expected(LONG)
    doubled.set_expected(LONG)
    called, begun = threading.Event(), threading.Event()

    def callback(x: Any) -> Any:
        called.set()
        begun.wait(10)
        ((inner,),) = doubled([pending])
        return np.asarray(x) + inner.read()

    outer = program(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct(X.shape, X.dtype), x) * 2, X)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(outer, [put(0, X)])  # which ends with its step
        assert called.wait(10)
        ((pending,),) = wait([put(0, X)])
        begun.set()
        ((made,),) = call.result(60)
    result = made.read()
    np.testing.assert_array_equal(result, (X + (pending.read() * 2 + 1)) * 2)


def test_what_a_step_that_stands_still_reads_is_not_written_over() -> None:
    adds = program(lambda x: x + 1, X, donate=(0,))
    called, goes_on = threading.Event(), threading.Event()

    def callback(x: Any) -> Any:
        called.set()
        goes_on.wait(10)
        return np.asarray(x)

    outer = program(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct(X.shape, X.dtype), x * 0) + x, X)
    for nanoseconds in (1, LONG):
        called.clear()
        goes_on.clear()
        adds.set_expected(nanoseconds)
        value = put(0, X)
        ((kept,),) = outer([value])
        assert called.wait(10)
        ((added,),) = adds([value])
        time.sleep(0.05)
        goes_on.set()
        np.testing.assert_array_equal(kept.read(), X)
        np.testing.assert_array_equal(added.read(), X + 1)


@pytest.mark.parametrize("by_thread", [False, True])
def test_python_that_is_called_may_call_its_caller(by_thread: bool) -> None:
    """Each step that stands still has memory of its own; others come after in their order."""

    def inner(x: Any) -> Any:
        ((made,),) = outer([put(0, x - 1)])
        return made.read()

    def callback(x: Any) -> Any:
        x = np.asarray(x)
        if x[0] <= 1:
            return x
        if not by_thread:
            return inner(x) * x
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inner, x).result(60) * x

    outer = program(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct(X.shape, X.dtype), x + 0) + 0, X)
    depth = 3 if by_thread else 6
    for count in (1, depth, depth):
        ((made,),) = outer([put(0, np.full_like(X, count))])
        np.testing.assert_array_equal(made.read(), np.full_like(X, math.factorial(count)))


def test_a_function_that_fails_within_itself_is_an_error_of_both() -> None:
    def callback(x: Any) -> Any:
        if np.asarray(x)[0] <= 1:
            raise ValueError("no such thing")
        ((made,),) = outer([put(0, np.asarray(x) - 1)])
        return made.read()

    outer = program(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct(X.shape, X.dtype), x), X)
    for _ in range(2):
        with pytest.raises(NativeError, match="no such thing"):
            outer([put(0, np.full_like(X, 3))])
