"""`shardc.from_tensorflow`, beside TensorFlow where it is installed, and beside a stand-in of its interface."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import P
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError

HLO = """HloModule a_step, input_output_alias={ {1}: (1, {}, may-alias) }, entry_computation_layout={(f32[8,4]{1,0}, f32[4]{0})->(f32[8,4]{1,0}, f32[4]{0})}

ENTRY %a_step (arg0: f32[8,4], arg1: f32[4]) -> (f32[8,4], f32[4]) {
  %arg0 = f32[8,4]{1,0} parameter(0), metadata={op_name="XLA_Args"}
  %arg1 = f32[4]{0} parameter(1), metadata={op_name="XLA_Args"}
  %wide = f32[8,4]{1,0} broadcast(%arg1), dimensions={1}
  %sum = f32[8,4]{1,0} add(%arg0, %wide)
  %twice = f32[4]{0} add(%arg1, %arg1)
  ROOT %out = (f32[8,4]{1,0}, f32[4]{0}) tuple(%sum, %twice)
}
"""  # noqa: E501  # as TensorFlow writes it


class _Variable:
    """A stand-in for ``tf.Variable``."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value, self.shape, self.handle = f"{name}:0", value, value.shape, object()

    def numpy(self) -> Any:
        return self.value

    def assign(self, value: Any) -> None:
        self.value = np.asarray(value)


class _Function:
    """A stand-in for a compiled ``tf.function`` that adds a variable, and doubles it."""

    def __init__(self, variable: _Variable, text: str = HLO) -> None:
        self.variable, self.text = variable, text

    def get_concrete_function(self, *_: Any) -> Any:
        return SimpleNamespace(
            name="a_step",
            captured_inputs=[self.variable.handle],
            variables=[self.variable],
            inputs=[SimpleNamespace(name="x:0"), SimpleNamespace(name="add/ReadVariableOp/resource:0")],
            structured_outputs={"sum": SimpleNamespace(shape=(8, 4))},
        )

    def experimental_get_compiler_ir(self, *_: Any) -> Callable[..., str]:
        def ir(*, stage: str) -> str:
            if stage != "hlo" or not self.text:
                raise ValueError("Compiler IR can only be returned for functions marked with 'jit_compile=True'")
            return self.text

        return ir


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented functions of TensorFlow that the front end calls."""

    def flatten(tree: Any) -> list[Any]:
        if isinstance(tree, dict):
            return [leaf for key in sorted(tree) for leaf in flatten(tree[key])]
        return [leaf for t in tree for leaf in flatten(t)] if isinstance(tree, (list, tuple)) else [tree]

    module = ModuleType("tensorflow")
    module.nest = SimpleNamespace(flatten=flatten, pack_sequence_as=lambda s, flat: dict(zip(s, flat, strict=True)))  # type: ignore[attr-defined]
    module.constant = lambda value: value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow", module)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("mesh", [None, {"data": 4}])
def test_names_aliases_and_values(mesh: Any) -> None:
    variable = _Variable("dense/bias", np.arange(4, dtype=np.float32))
    x = np.ones((8, 4), np.float32)
    program = shardc.from_tensorflow(_Function(variable), x)
    assert program.arg_names == ("x", "dense/bias") and program.module.result_names == ("result[0]", "new dense/bias")
    assert [a.parameter for a in program.module.aliases] == [1]
    compiled = (program.annotate({"x": P("data")}, mesh=mesh) if mesh else program).compile()
    np.testing.assert_array_equal(compiled(x)["sum"], x + np.arange(4))
    np.testing.assert_array_equal(compiled(x)["sum"], x + 2 * np.arange(4))
    np.testing.assert_array_equal(variable.value, 4 * np.arange(4))
    with pytest.raises(InputError, match="x"):
        compiled(x[:4])


@pytest.mark.usefixtures("stand_in")
def test_what_is_no_compiled_function_is_refused() -> None:
    variable = _Variable("b", np.zeros(4, np.float32))
    with pytest.raises(InputError, match="jit_compile=True"):
        shardc.from_tensorflow(lambda x: x, 1)
    with pytest.raises(UnsupportedError, match="returned no HLO"):
        shardc.from_tensorflow(_Function(variable, ""), np.ones((8, 4), np.float32))


def test_without_tensorflow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(EnvironmentProblem, match="pip install tensorflow"):
        shardc.from_tensorflow(_Function(_Variable("b", np.zeros(4))), np.ones((8, 4)))


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
@pytest.mark.filterwarnings("ignore")
def test_a_training_step_of_tensorflow() -> None:
    import tensorflow as tf

    def made() -> tuple[Any, list[Any]]:
        start = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
        w, b = tf.Variable(start, name="w"), tf.Variable(tf.zeros(8), name="b")
        count, scale = tf.Variable(0, name="count"), tf.range(8, dtype=tf.float32)

        @tf.function(jit_compile=True)
        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.matmul(x, w) + b * scale - y) ** 2)
            gradients = tape.gradient(loss, [w, b])
            w.assign_sub(0.1 * gradients[0])
            b.assign_sub(0.1 * gradients[1])
            count.assign_add(1)
            return {"loss": loss, "count": count.read_value()}

        return step, [w, b, count]

    x, y = tf.ones((4, 4)), tf.ones((4, 8))
    (own, variables), (theirs, wanted) = made(), made()
    program = shardc.from_tensorflow(own, x, y)
    assert {"x", "y", "w", "b", "count"} <= set(program.arg_names)
    for compiled in (program.compile(), program.annotate({"w": P(None, "m"), "x": P("d")}, {"d": 2, "m": 2}).compile()):
        for _ in range(2):
            got, want = compiled(x, y), theirs(x, y)
            np.testing.assert_allclose(got["loss"], want["loss"], rtol=1e-6)
            assert int(got["count"]) == int(want["count"])
    for ours, other in zip(variables, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
