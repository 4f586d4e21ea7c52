"""Writes sharded arrays with orbax and reads them back, in the same layout and in another."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from told import tell

mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("data", "model"))


def put(x, *axes):
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*axes)))


state = {
    "w": put(np.arange(64, dtype=np.float32).reshape(8, 8), "data", "model"),
    "b": put(jnp.arange(8, dtype=jnp.bfloat16), "model"),
    "step": jnp.int32(3),
    "seed": 5,
}
with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(Path(folder) / "one", state)
    checkpointer.wait_until_finished()
    again = checkpointer.restore(Path(folder) / "one", jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    assert again["w"].sharding == state["w"].sharding
    turned = NamedSharding(mesh, PartitionSpec("model", "data"))
    other = {**state, "w": jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=turned)}
    moved = checkpointer.restore(Path(folder) / "one", other)
    assert moved["w"].sharding == turned
    tell(again=again, moved=moved, later=jax.jit(lambda w: w @ w + 1)(moved["w"]))
    with ocp.CheckpointManager(Path(folder) / "many", options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave(jax.tree.map(lambda x, s=step: x + s, state)))
        manager.wait_until_finished()
        tell(
            steps=manager.all_steps(),
            latest=manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state)),
        )
