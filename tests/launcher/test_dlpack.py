"""DLPack both ways; JAX and NumPy on the other side."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError

MESH = Mesh({"x": 2})
TYPES = (
    "bool",
    "int8",
    "uint32",
    "float16",
    "complex64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
)


def value_of(dtype: str) -> np.ndarray:
    return np.arange(6).reshape(2, 3).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


class Foreign:
    """Has nothing but the protocol."""

    def __init__(self, value: Any, device: tuple[int, int] = (1, 0)) -> None:
        self._value, self._device = value, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


@pytest.mark.parametrize("dtype", TYPES)
def test_jax_reads_and_writes_it(dtype: str) -> None:
    value = value_of(dtype)
    out = jnp.from_dlpack(shardc.array(value, (MESH, P())))
    assert out.dtype == value.dtype
    np.testing.assert_array_equal(np.asarray(out), value)
    back = shardc.array(Foreign(out), (MESH, P("x")))
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(np.asarray(back), value)


def test_numpy_sees_the_memory() -> None:
    a = shardc.array(value_of("float32"), (MESH, P()))
    assert np.shares_memory(np.from_dlpack(a), a.addressable_shards[0].data)
    assert np.from_dlpack(shardc.array(3)) == 3


def test_memory_outlives_the_array() -> None:
    out = jnp.from_dlpack(shardc.array(np.arange(1 << 16), (MESH, P()), dtype="bfloat16", copy=True))
    np.testing.assert_array_equal(np.asarray(out[:8]).astype(int), np.arange(8))


def test_what_is_given_away_is_not_written_over() -> None:
    step = shardc.jit(lambda a: a + 1, mesh=MESH, in_shardings=P(), out_shardings=P(), donate_argnums=0)
    a = shardc.array(np.ones((64, 64), np.float32), (MESH, P()), copy=True)
    seen = np.from_dlpack(a)
    step(a)
    np.testing.assert_array_equal(seen, np.ones((64, 64)))
    with pytest.raises(InputError, match="donated"):
        np.from_dlpack(a)


def test_no_shard_has_it_all() -> None:
    with pytest.raises(InputError, match="no single shard of this process holds"):
        np.from_dlpack(shardc.array(value_of("float32"), (MESH, P("x"))))


def test_other_devices_are_refused() -> None:
    with pytest.raises(InputError, match="accelerator"):
        shardc.array(Foreign(np.ones(3), (2, 0)))
    with pytest.raises(BufferError, match="CPU"):
        shardc.array(np.ones(3)).__dlpack__(dl_device=(2, 0))
