"""The driver and `Array` with a hand-written step; no compiler involved."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, RunError
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.gather import gather
from shardc.launcher.driver.driver import STEP_TYPE, Driver
from tests.launcher.fake_program import program

X = np.arange(10, dtype=np.float32)
W = np.array([1, 2, 3], np.float32)


def make(devices: int = 4, *, donated: tuple[int, ...] = (), threads: int = 0) -> Driver:
    executable, step = program(devices, donated=donated)
    return Driver(executable, step, LocalTransport(), Config(num_threads=threads), array_type=Array)


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("threads", [1, 4])
def test_runs_and_keeps_uneven_shards_apart(devices: int, threads: int) -> None:
    driver = make(devices, threads=threads)
    for k in (1, 2):
        y, v = driver([X * k, W])
        np.testing.assert_array_equal(np.asarray(y), X * k * 45 * k)
        np.testing.assert_array_equal(np.asarray(v), W + 45 * k)
    assert (driver.steps, driver.collectives_done) == (2, 2)


class Fleeting:
    """Gives out memory that is written over as soon as nobody looks at it any more."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._memory[...] = -1


class Giver:
    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.asarray(Fleeting(self._memory))


def test_what_is_made_of_an_argument_lives_as_long_as_the_step() -> None:
    driver = make(1)
    memory = W.copy()
    _, v = driver([X, Giver(memory)])
    np.testing.assert_array_equal(np.asarray(v), W + 45)
    assert (memory == -1).all(), "nobody needs it behind the step"


def test_array_properties() -> None:
    y, v = make()([X, W])
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, len(y)) == ((10,), np.float32, 1, 10, 40, 10)
    assert y.is_fully_addressable
    assert repr(y) == "shardc.Array(f32[10], [{m}])"
    shards = y.addressable_shards
    assert [s.index for s in shards] == [(slice(0, 3),), (slice(3, 6),), (slice(6, 9),), (slice(9, 10),)]
    np.testing.assert_array_equal(np.concatenate([s.data for s in shards]), np.asarray(y))
    assert not shards[0].data.flags.writeable
    replicas = v.addressable_shards
    assert len(replicas) == 4
    assert np.shares_memory(replicas[0].data, replicas[3].data)
    assert float(v[0]) == 46
    assert y[2:4].tolist() == [90, 135]
    with pytest.raises(TypeError):
        float(y[0:2])
    np.testing.assert_array_equal(gather({"y": [y, 3], "v": (v,)})["y"][0], np.asarray(y))
    total = 0.5
    total += v[:1] + y[:1]
    assert (v + 1).tolist() == [47, 48, 49]
    assert np.add(1, v).tolist() == [47, 48, 49]
    assert (-v < 0).all()
    assert f"{np.max(v):.1f}" == "48.0"
    with pytest.raises(ValueError, match="without a copy"):
        np.array(y, copy=False)


def test_results_feed_the_next_step_without_a_copy() -> None:
    driver = make()
    y, v = driver([X, W])
    y2, _ = driver([y, v])
    np.testing.assert_allclose(np.asarray(y2), np.asarray(y) * np.asarray(y).sum(), rtol=1e-6)


def test_donated_arrays_are_gone_and_their_memory_used_again() -> None:
    driver = make(donated=(0,))
    y, v = driver([X, W])
    memory = {b.ctypes.data for b in y._blocks.values()}
    y2, _ = driver([y, v])
    assert y.is_deleted
    with pytest.raises(InputError, match=r"y \(f32\[10\]\) was donated to fake as argument 0 \(x\)"):
        np.asarray(y)
    with pytest.raises(InputError, match="donated"):
        driver([y, v])
    assert not v.is_deleted
    y3, _ = driver([y2, v])
    assert memory & {b.ctypes.data for b in y3._blocks.values()}
    assert X[3] == 3  # a donated NumPy array stays the user's


def test_views_given_out_keep_donated_memory_alive() -> None:
    driver = make(donated=(0,))
    y, v = driver([X, W])
    view = y.addressable_shards[0].data
    before = view.copy()
    for _ in range(3):
        y, v = driver([y, v])
    np.testing.assert_array_equal(view, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([X], "takes 2 arguments, but was given 1\n  fix: pass these parameters: x, w"),
        ([X[:9], W], r"an array of shape \[9\] was given, but the parameter has \[10\]\n  where: argument 0 \(x\)"),
        ([X.astype(np.float64), W], r"an array of float64 was given, but the parameter is f32"),
        ([X, 1.0], r"an array of shape \[\] was given"),
        ([X, 1j], r"the parameter is f32, but a Python complex was given"),
        ([X, "text"], r"an array of <U4|shape \[\]"),
        ([X, [[1], [2, 3]]], "not an array"),
    ],
)
def test_wrong_arguments(arguments: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()(arguments)


def test_swapped_arguments_are_told_the_order_of_the_parameters() -> None:
    with pytest.raises(InputError, match=r"in the order of the parameters: x \[10\], w \[3\]"):
        make()([W, X])


def test_donating_an_array_that_is_passed_twice() -> None:
    executable, step = program(4, n=3, donated=(0,))
    driver = Driver(executable, step, LocalTransport(), Config(), array_type=Array)
    _, v = driver([W, W])
    with pytest.raises(InputError, match="a donated array is passed a second time"):
        driver([v, v])


def test_devices_that_stop_at_different_places() -> None:
    executable, _ = program(4)
    step = STEP_TYPE(lambda arena, arguments, results, constants, device: 0 if device < 3 else -1)
    with pytest.raises(RunError, match="device 2 is in all-reduce %ar; device 3 is at the end"):
        Driver(executable, step, LocalTransport(), Config(), array_type=Array)([X, W])


def test_unknown_collective() -> None:
    executable, _ = program(4)
    step = STEP_TYPE(lambda arena, arguments, results, constants, device: 5)
    with pytest.raises(RunError, match="stopped at collective 5"):
        Driver(executable, step, LocalTransport(), Config(), array_type=Array)([X, W])
