"""Results written into donated arguments, where the executable says that the step may."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.config import Config
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from tests.launcher.fake_program import program

X = np.arange(10, dtype=np.float32)
W = np.array([1, 2, 3], np.float32)


def make(devices: int) -> Driver:
    executable, step = program(devices, donated=(0, 1))
    return Driver(replace(executable, aliases=((0, 0), (1, 1))), step, LocalTransport(), Config(), array_type=Array)


def addresses(array: object) -> list[int]:
    return [b.ctypes.data for b in array._blocks.values()]  # type: ignore[attr-defined]


def test_sharded_arrays_keep_their_memory_and_replicas_do_not() -> None:
    driver = make(4)
    y, v = driver([X, W])
    places = addresses(y)
    for k in (2, 3, 4):
        expected_y, expected_v = np.asarray(y) * np.asarray(y).sum(), np.asarray(v) + np.asarray(y).sum()
        y, v = driver([y, v])
        np.testing.assert_allclose(np.asarray(y), expected_y, rtol=1e-5, err_msg=str(k))
        np.testing.assert_allclose(np.asarray(v), expected_v, rtol=1e-5)
        assert addresses(y) == places
    assert W.tolist() == [1, 2, 3]
    assert X[9] == 9


def test_views_given_out_are_never_written() -> None:
    driver = make(4)
    y, v = driver([X, W])
    shard = y.addressable_shards[1].data
    before = shard.copy()
    for _ in range(3):
        y, v = driver([y, v])
    np.testing.assert_array_equal(shard, before)


def test_one_device_works_in_place_on_replicated_arrays_too() -> None:
    driver = make(1)
    _, v = driver([X, W])
    place = addresses(v)
    assert addresses(driver([X, v])[1]) == place
