"""One rank of a job that reshards between layouts and meshes; also what there is to reshard."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError

X = np.arange(7 * 6, dtype=np.float32).reshape(7, 6)
#: The last ones number devices so that no mesh expresses them and the first one.
MESHES = (
    Mesh({"x": 2, "y": 2}),
    Mesh({"a": 4}),
    Mesh({"x": 2, "y": 2}, (3, 1, 2, 0)),
    Mesh({"b": 2, "c": 2}, (0, 2, 1, 3)),
)


def cases() -> Iterator[tuple[Mesh, P]]:
    """Layouts of `X`."""
    for mesh in MESHES:
        first, last = mesh.axis_names[0], mesh.axis_names[-1]
        yield mesh, P()
        yield mesh, P(first)
        yield mesh, P(None, last)
        if first != last:
            yield mesh, P(last, first)
            yield mesh, P((first, last))
            yield mesh, P(None, (last, first))


def check(a: shardc.Array) -> None:
    for shard in a.addressable_shards:
        assert np.array_equal(shard.data, X[shard.index]), (a, shard)
    assert np.array_equal(shardc.gather(a), X)


def of_jax() -> None:
    """Arrays over several of JAX's devices, and keys that come out split among ranks."""
    import jax

    over = jax.make_mesh((4,), ("q",))
    found = jax.device_put(X[:, :4], jax.sharding.NamedSharding(over, jax.sharding.PartitionSpec(None, "q")))
    assert len(found.addressable_shards) == 4
    a = shardc.array(found, (MESHES[0], P("x", "y")))
    assert np.array_equal(shardc.gather(a), X[:, :4])
    even, devices = np.arange(32).reshape(8, 4), np.array(jax.devices())
    for mesh, spec in cases():
        grid = jax.sharding.Mesh(devices[mesh.grid()], mesh.axis_names)
        named = jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*spec))
        theirs = {d.id: even[index] for d, index in named.devices_indices_map(even.shape).items()}
        for shard in shardc.array(even, named).addressable_shards:
            assert np.array_equal(shard.data, theirs[shard.device]), (mesh, spec, shard)
    keys = shardc.jit(lambda k: jax.random.split(k, 4), mesh=MESHES[0], out_shardings=P(("x", "y")))(jax.random.key(3))
    assert np.array_equal(jax.random.key_data(keys), jax.random.key_data(jax.random.split(jax.random.key(3), 4)))


def main() -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

    everything = list(cases())
    done = 0
    for k, source in enumerate(everything):
        a = shardc.array(X, source)
        check(a.reshard(everything[(5 * k + 3) % len(everything)]))
        done += 1
    mesh = MESHES[0]
    rank, count = shardc.process_index(), shardc.process_count()
    rows = np.full((2, 3), rank, np.int32)
    local = shardc.array_from_process_local_data((mesh, P(("x", "y"))), rows)
    assert local.shape == (2 * count, 3)
    assert np.array_equal(shardc.gather(local)[:, 0], np.repeat(np.arange(count), 2))
    # Another layout than the program's, where no rank has the whole.
    step = shardc.jit(lambda a: a * 2, mesh=mesh, in_shardings=P(None, "y"), out_shardings=P(None, "y"))
    assert np.array_equal(shardc.gather(step(shardc.array(X, (mesh, P(("x", "y")))))), 2 * X)
    of_jax()
    # Some ranks have one device, some two, and nothing is exchanged.
    six = shardc.jit(lambda a: a + 1, mesh=Mesh({"q": 6}), in_shardings=P(None, "q"), out_shardings=P(None, "q"))
    assert np.array_equal(shardc.gather(six(X)), X + 1)
    try:
        shardc.array(X)
    except InputError as e:
        assert f"would be on 1 device, but the job has {count} ranks" in str(e)
    else:
        raise AssertionError("one device for several ranks")
    try:
        shardc.array(X, (mesh, P(None, ("x", "y")))).reshard((Mesh({"q": 5}), P("q")))
    except InputError as e:
        assert "is on 4 devices, but the new sharding on 5" in str(e)
    else:
        raise AssertionError("meshes of different sizes")
    uneven = shardc.array_from_process_local_data((mesh, P(("x", "y"))), np.ones((2 + 2 * (rank == 1), 3)))
    try:
        shardc.gather(uneven)
    except InputError as e:
        assert f"f64[{2 * count},3]" in str(e), e
        assert f"ranks [1] have shardc.Array(f64[{4 * count},3]" in str(e), e
    else:
        raise AssertionError("arrays of different shapes")
    if rank == 0:
        print(f"resharded {done} times")


if __name__ == "__main__":
    main()
