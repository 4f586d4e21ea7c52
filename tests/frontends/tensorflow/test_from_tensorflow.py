"""`shardc.from_tensorflow`, beside TensorFlow where it is installed, and beside a stand-in of its interface."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import P
from shardc.frontends.pjrt.protos.modules import module_message
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.text.reader import read_hlo

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


#: A program with a constant whose value TensorFlow's text leaves out.
LARGE = """HloModule large

ENTRY %large (arg0: f32[12]) -> f32[12] {
  %arg0 = f32[12]{0} parameter(0), metadata={op_name="XLA_Args"}
  %twelve = f32[12]{0} constant({0,1,2,3,4,5,6,7,8,9,10,11}), metadata={op_name="loop/range"}
  ROOT %sum = f32[12]{0} add(%arg0, %twelve), metadata={op_name="add"}
}
"""

RANDOM = """HloModule random

ENTRY %random (arg0: f32[12]) -> f32[12] {
  %arg0 = f32[12]{0} parameter(0), metadata={op_name="XLA_Args"}
  %zero = f32[] constant(0)
  %one = f32[] constant(1)
  %drawn = f32[12]{0} rng(%zero, %one), distribution=rng_uniform, metadata={op_name="loop/drawn"}
  ROOT %sum = f32[12]{0} add(%arg0, %drawn)
}
"""


class _Variable:
    """A stand-in for ``tf.Variable``."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value, self.shape, self.handle = f"{name}:0", value, value.shape, object()
        self.dtype = value.dtype

    def numpy(self) -> Any:
        return self.value

    def assign(self, value: Any) -> None:
        self.value = np.asarray(value)


class _Function:
    """A stand-in for a compiled ``tf.function``, by default one that adds a variable, and doubles it.

    Its operation ``loop`` is on line 7 of a file of the user's.
    """

    def __init__(self, variable: _Variable | None, text: str = HLO) -> None:
        self.variables, self.text = [variable] if variable else [], text

    @staticmethod
    def python_function(x: Any, scale: float = 2.0) -> Any:
        """What TensorFlow traces."""

    def get_concrete_function(self, x: Any, scale: float) -> Any:
        def operation(name: str) -> Any:
            if name != "loop":
                raise KeyError(name)
            frames = [("/home/user/train.py", 7), (np.__file__.replace("numpy", "x-packages/numpy"), 3)]
            return SimpleNamespace(traceback=[SimpleNamespace(filename=f, lineno=n) for f, n in frames])

        return SimpleNamespace(
            captured_inputs=[v.handle for v in self.variables],
            variables=self.variables,
            inputs=[SimpleNamespace(name="x:0"), SimpleNamespace(name="add/ReadVariableOp/resource:0")],
            structured_input_signature=((SimpleNamespace(shape=x.shape, dtype=x.dtype), scale), {}),
            structured_outputs={"sum": SimpleNamespace(shape=x.shape)},
            graph=SimpleNamespace(get_operation_by_name=operation),
        )

    def experimental_get_compiler_ir(self, *_: Any) -> Callable[..., str | bytes]:
        def ir(*, stage: str) -> str | bytes:
            if not self.text:
                raise ValueError("Compiler IR can only be returned for functions marked with 'jit_compile=True'")
            if stage == "hlo":
                return re.sub(r"constant\(\{.*?\}\)", "constant({...})", self.text)
            assert stage == "hlo_serialized"
            return module_message(read_hlo(self.text)).to_bytes()

        return ir


class _Nest:
    """A stand-in for ``tf.nest``."""

    def flatten(self, tree: Any) -> list[Any]:
        if isinstance(tree, dict):
            return [leaf for key in sorted(tree) for leaf in self.flatten(tree[key])]
        return [leaf for t in tree for leaf in self.flatten(t)] if isinstance(tree, (list, tuple)) else [tree]

    def pack_sequence_as(self, tree: Any, flat: Any) -> Any:
        leaves = iter(flat)

        def packed(t: Any) -> Any:
            if isinstance(t, dict):
                return {key: packed(t[key]) for key in sorted(t)}
            return tuple(map(packed, t)) if isinstance(t, (list, tuple)) else next(leaves)

        return packed(tree)

    def assert_same_structure(self, a: Any, b: Any) -> None:
        if len(self.flatten(a)) != len(self.flatten(b)):
            raise ValueError("The two structures don't have the same nested structure.")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented functions of TensorFlow that the front end calls."""
    module = ModuleType("tensorflow")
    module.nest = _Nest()  # type: ignore[attr-defined]
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
    compiled(x=x, scale=2.0)
    with pytest.raises(InputError, match="x"):
        compiled(x[:4])
    with pytest.raises(InputError, match=r"made for 2.0, but the call passes 3.0"):
        compiled(x, 3.0)
    with pytest.raises(InputError, match="nested structure"):
        compiled([x, x])
    with pytest.raises(InputError, match="too many positional"):
        compiled(x, 2.0, 3)


@pytest.mark.usefixtures("stand_in")
def test_large_constants_and_lines_of_the_user() -> None:
    x = np.ones(12, np.float32)
    program = shardc.from_tensorflow(_Function(None, LARGE), x)
    np.testing.assert_array_equal(program.compile()(x)["sum"], x + np.arange(12))
    assert [i.source for i in program.module.instructions()] == ["", "/home/user/train.py:7", ""]
    other = shardc.from_tensorflow(_Function(None, LARGE.replace("11}", "77}")), x)
    np.testing.assert_array_equal(other.compile()(x)["sum"][-1:], [78])  # not the first one from a cache


@pytest.mark.usefixtures("stand_in")
def test_random_numbers_that_depend_on_no_state_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"the same in each call\n.*train.py:7\n.*tf.random.Generator"):
        shardc.from_tensorflow(_Function(None, RANDOM), np.ones(12, np.float32))


@pytest.mark.usefixtures("stand_in")
def test_a_variable_that_is_the_only_result() -> None:
    text = """HloModule a_update, input_output_alias={ {}: (1, {}, may-alias) }

ENTRY %a_update (arg0: f32[4], arg1: f32[4]) -> f32[4] {
  %arg0 = f32[4]{0} parameter(0)
  %arg1 = f32[4]{0} parameter(1)
  ROOT %sum = f32[4]{0} add(%arg0, %arg1)
}
"""
    variable, x = _Variable("total", np.arange(4, dtype=np.float32)), np.ones(4, np.float32)
    function = _Function(variable, text)
    traced = function.get_concrete_function(x, 2.0)
    traced.structured_outputs = None
    function.get_concrete_function = lambda *_: traced  # type: ignore[method-assign]
    assert shardc.from_tensorflow(function, x).compile()(x) is None
    np.testing.assert_array_equal(variable.value, np.arange(4) + 1)


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


needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")


@needs_tensorflow
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


X, A = np.arange(12, dtype=np.float32), np.full(12, 3, np.float32)


def _check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the compiled program of ``function`` gives for arguments is what TensorFlow gives."""
    import tensorflow as tf

    compiled = shardc.from_tensorflow(tf.function(function, jit_compile=True), *args, **kwargs).compile()
    got, want = compiled(*args, **kwargs), tf.function(function, jit_compile=True)(*args, **kwargs)
    tf.nest.map_structure(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5), got, want)
    return compiled


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_arguments_by_name_and_values_of_python() -> None:
    def function(x: Any, a: Any, scale: float = 2.0, *, z: Any = None, b: Any = None, flag: bool = True) -> Any:
        return x - a * scale + (0 if z is None else z - 3 * b) if flag else x

    compiled = _check(function, x=X, a=A)
    np.testing.assert_array_equal(compiled(X, a=A), X - 2 * A)
    for args, kwargs in (((X, A, 3.0), {}), ((X, A), {"flag": False})):
        with pytest.raises(InputError, match="read the function again"):
            compiled(*args, **kwargs)
    _check(function, X, A, z=A, b=X)
    _check(lambda d: d["b"] - d["a"][0], {"b": X, "a": (A,)})
    _check(lambda *xs, **named: xs[0] - xs[1] * named["z"] + named["b"], X, A, z=A, b=X)
    _check(lambda x, k, kind: x * k if kind == "up" else x, X, np.float32(2), "up")


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_large_constants_of_tensorflow() -> None:
    import tensorflow as tf

    _check(lambda x: x + tf.range(12, dtype=tf.float32), X)
    table = np.random.default_rng(0).normal(size=(3, 4, 5))
    for dtype in (np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_, np.complex64):
        value = partial(tf.constant, (9 * table).astype(dtype))
        _check(lambda x, value=value: (x, tf.transpose(value(), [2, 0, 1])), X)

    def loop(x: Any) -> Any:
        return tf.while_loop(lambda k, _: k < 3, lambda k, x: (k + 1, x * tf.range(12.0)), (0, x))

    _check(loop, X)


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_random_numbers_of_tensorflow() -> None:
    import tensorflow as tf

    def drawn(seed: int) -> Callable[..., Any]:
        generator = tf.random.Generator.from_seed(seed)
        return tf.function(lambda x: x + generator.uniform((12,)), jit_compile=True)

    compiled, wanted = shardc.from_tensorflow(drawn(1), X).compile(), drawn(1)
    for _ in range(2):
        np.testing.assert_allclose(compiled(X), wanted(X), rtol=1e-6)
    _check(lambda x: x + tf.random.stateless_normal((12,), [1, 2]), X)
    for function in (lambda x: tf.nn.dropout(x, 0.5), lambda x: x + tf.random.normal((12,))):
        with pytest.raises(UnsupportedError, match=r"the same in each call\n.*test_from_tensorflow.py:\d+"):
            shardc.from_tensorflow(tf.function(function, jit_compile=True), X)


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_compiled_in() -> None:
    import tensorflow as tf

    def repeated(x: Any, n: Any) -> Any:
        return tf.while_loop(lambda k, _: k < n, lambda k, x: (k + 1, 2 * x), (0, x), maximum_iterations=n)[1]

    def shaped(x: Any, n: Any, m: Any = None) -> Any:
        return tf.reshape(x, n) + (0 if m is None else tf.cast(m[0], tf.float32))

    compiled, shape = _check(shaped, X, tf.constant([3, 4])), tf.constant([3, 4])
    with pytest.raises(InputError, match="read the function again"):
        compiled(X, tf.constant([4, 3]))
    _check(repeated, X, 3)
    _check(lambda x: shaped(x, shape) * tf.constant(2.0), X)
    _check(lambda empty, x: tf.concat([empty, x], 0), np.zeros(0, np.float32), X)
    with pytest.raises(UnsupportedError, match="as Python numbers"):
        shardc.from_tensorflow(tf.function(shaped, jit_compile=True), X, shape, shape)


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_variables_as_arguments() -> None:
    import tensorflow as tf

    v, w = tf.Variable(A), tf.Variable(2 * X)
    compiled = _check(lambda a, b, c, x: a * b - c + x, v, w, v, X)
    with pytest.raises(InputError, match="4 tensors"):
        compiled(v, w, w, X)
    assert (
        shardc.from_tensorflow(tf.function(lambda x: [v.assign_add(x), None][1], jit_compile=True), X).compile()(X)
        is None
    )
    np.testing.assert_array_equal(v, A + X)
    with pytest.raises(UnsupportedError, match="so that the function captures it"):
        shardc.from_tensorflow(tf.function(lambda v, x: v.assign_add(x), jit_compile=True), v, X)


@needs_tensorflow
@pytest.mark.filterwarnings("ignore")
def test_a_variable_that_is_compiled_in() -> None:
    import tensorflow as tf

    axis, x = tf.Variable(0, name="axis"), np.arange(9, dtype=np.float32).reshape(3, 3)
    compiled = shardc.from_tensorflow(tf.function(lambda x: tf.reduce_sum(x, axis), jit_compile=True), x).compile()
    np.testing.assert_array_equal(compiled(x), x.sum(0))
    axis.assign(1)
    with pytest.raises(InputError, match="the variable axis:0 is 1, but TensorFlow compiled the function for 0"):
        compiled(x)


@needs_tensorflow
@pytest.mark.mpi
def test_changed_variables_and_results_are_whole_on_every_rank() -> None:
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable]
    worker = Path(__file__).with_name("tensorflow_worker.py")
    done = subprocess.run([*command, str(worker)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines().count("right") == 2
