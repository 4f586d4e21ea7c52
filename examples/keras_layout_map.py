"""A Keras 3 model on JAX, whose LayoutMap becomes annotations: a training step on 2 x 2 virtual devices.

Needs Keras: pip install keras.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np

import shardc
from shardc import P


def specs_of(layout_map, variables, argument):
    """Annotations for a dictionary of variables by path: LayoutMap's axes are those of a P."""
    found = {v.path: layout_map[v.path] for v in variables}
    return {f"{argument}['{path}']": P(*layout.axes) for path, layout in found.items() if layout is not None}


def main():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(64, activation="gelu", name="up"), keras.layers.Dense(8, name="down")]
    model = keras.Sequential([keras.Input((16,)), *layers], name="network")
    mesh = keras.distribution.DeviceMesh((2, 2), ["data", "model"], [f"cpu:{k}" for k in range(4)])
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map[".*up/kernel"] = (None, "model")
    layout_map[".*up/bias"] = ("model",)
    layout_map[".*down/kernel"] = ("model", None)

    def step(weights, x, y):
        def loss(weights):
            made, _ = model.stateless_call([weights[v.path] for v in model.trainable_variables], [], x)
            return ((made - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradients), value

    weights = {v.path: np.asarray(v.value) for v in model.trainable_variables}
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(32, n)).astype(np.float32) for n in (16, 8))
    program = shardc.from_jax(jax.jit(step), weights, x, y)
    specs = {**specs_of(layout_map, model.trainable_variables, "weights"), "x": P("data"), "y": P("data")}
    split = program.annotate(specs, mesh=dict(zip(mesh.axis_names, mesh.shape, strict=True)))
    print(*split.partition().explain(), sep="\n")
    compiled, alone = split.compile(), jax.jit(step)
    ours = theirs = weights
    for _ in range(3):
        ours, value = compiled(ours, x, y)
        theirs, wanted = alone(theirs, x, y)
        print(f"loss {float(np.asarray(value)):.5f}, with JAX alone {float(wanted):.5f}")
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-6)


if __name__ == "__main__":
    main()
