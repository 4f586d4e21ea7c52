"""Steps of TensorFlow with a split variable and a split result, on ranks: beside TensorFlow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import shardc
from shardc import P

X = np.random.default_rng(0).standard_normal((4, 16), np.float32)


def make() -> tuple[Any, Any]:
    """A variable, and the step that changes it."""
    w = tf.Variable(np.ones((16, 8), np.float32), name="w")

    def train(x: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ w))
        w.assign_sub(0.001 * tape.gradient(loss, w))
        return loss, x * 2

    return w, tf.function(train, jit_compile=True)


(ours, step), (theirs, true) = make(), make()
program = shardc.from_tensorflow(step, X).annotate({"w": P(None, "m"), "x": P("m")}, mesh={"m": 2})
compiled = program.compile()
for _ in range(3):
    for got, wanted in zip((*compiled(X), ours), (*true(X), theirs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
print("right")
