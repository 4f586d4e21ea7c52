"""Manual computations whose loops turn differently often in different groups, against the same in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh
from shardc.hlo.errors import RunError

jax = pytest.importorskip("jax")

_MESH = Mesh({"d": 2, "m": 2})


def _compiled(sizes: str | tuple[str, ...], donate: bool = False) -> Any:
    from jax.sharding import PartitionSpec as Spec

    def local(x: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            turn, v = carry
            turned = jax.lax.ppermute(v, "m", [(0, 1)])
            whole = jax.lax.all_gather(v, "m")
            return turn + 1, v + 2 * jax.lax.psum(v, "m") + 3 * turned - whole[0]

        _, v = jax.lax.while_loop(lambda c: c[0] < n[0], body, (0, x))
        return v + jax.lax.psum(v, ("d", "m"))

    function = jax.shard_map(
        local,
        mesh=_MESH.to_jax(),
        in_specs=(Spec("d", "m"), Spec(sizes)),
        out_specs=Spec("d", "m"),
        check_vma=False,
    )
    count = 2 if sizes == "d" else 4
    x, n = np.zeros((4, 4), np.int32), np.zeros(count, np.int32)
    program = shardc.from_jax(jax.jit(function, donate_argnums=(0,) if donate else ()), x, n)
    return program.propagate().partition().compile("cpu")


def _expected(x: Any, turns: list[int]) -> Any:
    blocks = {(d, m): x[2 * d : 2 * d + 2, 2 * m : 2 * m + 2].copy() for d in range(2) for m in range(2)}
    for d, count in enumerate(turns):
        for _ in range(count):
            a, b = blocks[d, 0], blocks[d, 1]
            blocks[d, 0], blocks[d, 1] = a + 2 * (a + b) - a, b + 2 * (a + b) + 3 * a - a
    total = sum(blocks.values())
    return np.block([[blocks[d, m] + total for m in range(2)] for d in range(2)])


@pytest.mark.parametrize("turns", [[0, 0], [3, 3], [1, 4], [5, 2], [0, 3]])
@pytest.mark.parametrize("donate", [False, True])
def test_groups_loop_differently_often(turns: list[int], donate: bool) -> None:
    compiled = _compiled("d", donate)
    x = np.arange(16, dtype=np.int32).reshape(4, 4)
    for _ in range(2):  # the next step begins together again
        np.testing.assert_array_equal(np.asarray(compiled(x, np.array(turns, np.int32))), _expected(x, turns))


def test_members_of_a_group_may_not() -> None:
    compiled = _compiled(("d", "m"))
    x = np.ones((4, 4), np.int32)
    with pytest.raises(RunError, match=r"took different branches.*device 1"):
        compiled(x, np.array([1, 2, 1, 1], np.int32))
    same = compiled(x, np.array([2, 2, 1, 1], np.int32))
    np.testing.assert_array_equal(np.asarray(same), _expected(x, [2, 1]))
