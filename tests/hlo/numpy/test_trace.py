"""`shardc.trace`: a NumPy function through all stages, nested arguments, shardings, names and source lines."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.numpy.trace import trace_function
from shardc.hlo.text.printer import print_module
from tests.hlo.numpy.trace_support import agree, copies, leaves_of
from tests.hlo.numpy.trace_table import LINALG, ROWS, Row, cases

MESH = Mesh({"data": 2, "model": 2})
HERE = Path(__file__).name


def step(params: Any, batch: Any, rate: Any) -> Any:
    """One step of a perceptron, its backward pass by hand."""
    x, y = batch
    hidden = shardc.shard(np.tanh(x @ params["w1"] + params["b1"]), P("data", "model"))
    error = hidden @ params["w2"] - y
    loss = np.mean(error**2)
    slope = 2 * error / error.size
    back = slope @ params["w2"].T * (1 - hidden**2)
    gradients = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ slope}
    return {k: params[k] - rate * gradients[k] for k in params}, loss


def arguments(dtype: str = "float32") -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    params = {"w1": rng.normal(0, 0.3, (6, 8)), "b1": np.zeros(8), "w2": rng.normal(0, 0.3, (8, 3))}
    batch = (rng.normal(size=(10, 6)), rng.normal(size=(10, 3)))
    return {k: v.astype(dtype) for k, v in params.items()}, tuple(b.astype(dtype) for b in batch), 0.1


SPECS = {"params['w1']": P(None, "model"), "params['w2']": P("model"), "batch[0]": P("data"), "batch[1]": P("data")}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_step_on_a_2x2_mesh(dtype: str) -> None:
    args = arguments(dtype)
    program = shardc.trace(step, *args).annotate(SPECS, mesh=MESH)
    partitioned = program.partition()
    assert {c["op"] for c in partitioned.report()["collectives"]} == {"all-reduce"}
    params, loss = partitioned.compile("cpu")(*args)
    wanted, wanted_loss = step(*args)
    assert loss.dtype == dtype
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(np.asarray(loss), wanted_loss, rtol=tolerance)
    for name, w in wanted.items():
        assert params[name].dtype == w.dtype
        np.testing.assert_allclose(shardc.gather(params[name]), w, rtol=0, atol=tolerance)


def test_names_and_source_lines() -> None:
    program = shardc.trace(step, *arguments())
    assert program.arg_names == ("params['b1']", "params['w1']", "params['w2']", "batch[0]", "batch[1]", "rate")
    assert program.module.result_names == ("result[0]['b1']", "result[0]['w1']", "result[0]['w2']", "result[1]")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    products = [i for i in program.module.instructions() if i.opcode == "dot"]
    assert len(products) == 5
    for i in products:
        file, _, line = i.source.rpartition(":")
        assert Path(file).name == HERE
        assert "@" in lines[int(line) - 1], i
        assert i.metadata is not None
        assert i.metadata.op_name == "step/matmul"
    explained = program.annotate(SPECS, mesh=MESH).partition().explain()
    assert explained
    assert all(HERE in text for text in explained)


def test_what_nobody_needs_is_left_out() -> None:
    def function(x: Any, y: Any) -> Any:
        shardc.shard(np.exp(x), P("data"))
        return x + 1

    module = shardc.trace(function, np.zeros(3), np.zeros(2), mesh=MESH).module
    assert [i.opcode for i in module.entry] == ["parameter", "parameter", "constant", "broadcast", "add", "tuple"]


def test_specs_stand_for_arrays() -> None:
    given = arguments()
    specs = ({k: ShapeDtype(v.shape, v.dtype) for k, v in given[0].items()}, tuple(given[1]), 0.1)
    assert print_module(shardc.trace(step, *specs).module) == print_module(shardc.trace(step, *given).module)
    assert ShapeDtype((8, 16), "float32").dtype == np.float32


def test_without_a_mesh_axes_wait_for_their_sizes(caplog: pytest.LogCaptureFixture) -> None:
    program = shardc.trace(step, *arguments())
    assert program.mesh == Mesh({"data": 1, "model": 1})
    assert program.annotate(mesh=MESH).mesh == MESH
    assert shardc.trace(lambda x: x + 1, np.zeros(3)).mesh is None
    assert not caplog.records
    assert shardc.trace(lambda x: x + 1, np.zeros(3), in_shardings=P("data")).mesh == Mesh({"data": 1})
    assert "has shardings but no mesh: axes have size 1" in caplog.text


def test_shardings_of_specs_arguments_and_results() -> None:
    def double(x: Any, y: Any) -> Any:
        return {"a": 2 * x, "b": y}

    spec = ShapeDtype((4, 6), "float32", P("data"))
    module = shardc.trace(double, spec, np.zeros(4), mesh=MESH, out_shardings={"a": P(None, "model"), "b": None}).module
    assert module.parameters[0].sharding == Sharding.of(MESH, "data", None)
    assert module.parameters[1].sharding is None
    assert module.entry.root.sharding == (Sharding.of(MESH, None, "model"), None)
    module = shardc.trace(double, spec, np.zeros(4), mesh=MESH, in_shardings=(None, P("model"))).module
    assert module.parameters[1].sharding == Sharding.of(MESH, "model")
    whole = shardc.trace(double, ShapeDtype((4, 6)), ShapeDtype((4, 2)), mesh=MESH, in_shardings=P("data")).module
    assert [p.sharding for p in whole.parameters] == [Sharding.of(MESH, "data", None)] * 2


def test_the_sharding_of_a_shape_may_bring_its_mesh() -> None:
    rows = ShapeDtype((8,), "float32", (MESH, P("data")))
    for mesh in (None, MESH):
        program = shardc.trace(lambda x: x.sum(), rows, mesh=mesh)
        assert program.mesh == MESH
        assert program.module.parameters[0].sharding == Sharding.of(MESH, "data")
    for sharding, what in (
        ((Mesh({"data": 8}), P("data")), "over the mesh data=8, but mesh= is"),
        (Sharding.of(Mesh({"data": 8}), "data"), "over the mesh data=8, but mesh= is"),
        (P("zz"), "no axis 'zz'"),
        ("data", "is not a PartitionSpec"),
    ):
        with pytest.raises(AnnotationError, match=what):
            shardc.trace(lambda x: x.sum(), ShapeDtype((8,), "float32", sharding), mesh=MESH)


def test_arguments_over_several_meshes_are_refused_in_any_order() -> None:
    x = shardc.array(np.ones((8, 8)), (MESH, P("data")))
    other = ShapeDtype((8, 8), "float64", (Mesh({"a": 2, "b": 2}), P("a")))
    for arguments in ((x, other), (other, x)):
        with pytest.raises(AnnotationError, match="over several meshes: "):
            shardc.trace(lambda x, y: x @ y, *arguments)


def test_results_and_jax_shapes_stand_for_arguments() -> None:
    """With the layouts that they carry."""
    x = np.arange(8.0)
    spread = shardc.trace(lambda x: 2 * x, ShapeDtype((8,), "float64", P("data")), mesh=MESH, out_shardings=P("model"))
    y = spread.compile()(x)
    again = shardc.trace(lambda y: y + 1, y)
    assert again.mesh == MESH
    assert again.module.parameters[0].sharding == Sharding.of(MESH, "model")
    np.testing.assert_array_equal(shardc.gather(again.compile()(y)), 2 * x + 1)
    assert shardc.trace(lambda y: y + 1, y, mesh=Mesh({"data": 4})).module.parameters[0].sharding is None
    jax = pytest.importorskip("jax")
    named = jax.sharding.NamedSharding(MESH.to_jax(), jax.sharding.PartitionSpec("data"))
    module = shardc.trace(lambda x: x + 1, jax.ShapeDtypeStruct((4,), "float32", sharding=named)).module
    assert module.parameters[0].sharding == Sharding.of(MESH, "data")
    assert shardc.trace(lambda x: x + 1, jax.numpy.ones(3)).mesh is None
    with pytest.raises(InputError, match="NumPy functions"):
        shardc.shard(jax.numpy.ones(3), P("data"))


def _partitioned(row: Row) -> None:
    """First and last dimensions of arguments over two devices."""
    name, function, arguments_ = row
    _, args = next(iter(cases(arguments_)))
    with np.errstate(all="ignore"):
        wanted = leaves_of(function(*copies(args)))
    for axis in (0, -1):
        specs = tuple(P(*[None] * (axis % a.ndim), "d") if a.ndim else None for a in args)
        program = shardc.trace(function, *args, mesh=Mesh({"d": 2}), in_shardings=specs)
        results = program.compile().run(program.jax.flatten(args))
        for got, w in zip(results, wanted, strict=True):
            agree(shardc.gather(got), w, 512 if row in LINALG else 64, f"{name} partitioned")


@pytest.mark.parametrize("row", [row for _, row in ROWS[::6]], ids=[f"{f}-{row[0]}" for f, row in ROWS[::6]])
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_partitioned(row: Row) -> None:
    _partitioned(row)


@pytest.mark.full
@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[f"{f}-{row[0]}" for f, row in ROWS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_whole_table_partitioned(row: Row) -> None:
    _partitioned(row)


def test_wrong_shardings() -> None:
    x = np.zeros((4, 4))
    with pytest.raises(AnnotationError, match="modle"):
        shardc.trace(lambda x: shardc.shard(x, P("modle")), x, mesh=MESH)
    with pytest.raises(AnnotationError, match="3 entries") as caught:
        shardc.trace(lambda x: shardc.shard(x, P("data", None, None)), x, mesh=MESH)
    assert HERE in str(caught.value.where)
    with pytest.raises(AnnotationError, match="not a PartitionSpec"):
        shardc.shard(x, 3)
    with pytest.raises(AnnotationError, match="does not fit"):
        shardc.trace(lambda x: x, x, mesh=MESH, in_shardings=(P(), P()))


def test_shard_is_the_identity_on_plain_arrays() -> None:
    x = np.zeros((4, 4))
    assert shardc.shard(x, P("data")) is x
    both = shardc.shard({"a": [x], "b": (x, 1.0)}, P("data"))
    assert both["a"][0] is x
    assert both["b"] == (x, 1.0)


def test_nested_arguments_and_results() -> None:
    Pair = namedtuple("Pair", ("left", "right"))

    def swap(pair: Any, *rest: Any, extra: Any = None) -> Any:
        return Pair(pair.right, [pair.left, None, {"n": rest[0] * 2}]), extra, 3, np.float32(4)

    args = (Pair(np.arange(3), np.ones(2)), np.arange(2.0))
    program = shardc.trace(swap, *args, extra={"k": np.zeros(1)})
    assert program.arg_names == ("pair.left", "pair.right", "rest[0]", "extra['k']")
    result = program.compile()(*args, extra={"k": np.zeros(1)})
    pair, extra, three, four = result
    assert type(pair).__name__ == "Pair"
    np.testing.assert_array_equal(pair.left, np.ones(2))
    np.testing.assert_array_equal(pair.right[0], np.arange(3))
    assert pair.right[1] is None
    np.testing.assert_array_equal(pair.right[2]["n"], [0, 2])
    assert (extra["k"].shape, int(three), four.dtype) == ((1,), 3, np.float32)
    with pytest.raises(InputError, match="1 argument given, swap takes 2: pair, rest"):
        program.compile()(args[0], extra={})


def test_python_numbers_adapt_to_arrays() -> None:
    def function(x: Any, n: Any, f: Any) -> Any:
        return x * n, x + f, n / 2, n * 2 + x, np.sqrt(f), f + n

    for dtype in ("float32", "int8", "complex64", "float64"):
        x = np.ones(3, dtype)
        program = shardc.trace(function, x, 3, 0.5)
        for got, want in zip(program.compile()(x, 3, 0.5), function(x, 3, 0.5), strict=True):
            assert got.dtype == np.asarray(want).dtype
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_donated_arguments() -> None:
    program = shardc.trace(lambda s, x: ({"w": s["w"] + x}, x), {"w": np.zeros(4)}, np.ones(4), donate_argnums=0)
    assert program.module.donors == (0,)
    state, _ = program.compile()({"w": np.zeros(4)}, np.ones(4))
    np.testing.assert_array_equal(state["w"], np.ones(4))
    with pytest.raises(InputError, match="donate_argnums names argument 5"):
        shardc.trace(lambda x: x, np.zeros(3), donate_argnums=5)


def test_what_is_no_function() -> None:
    with pytest.raises(InputError, match="int cannot be traced"):
        shardc.trace(3, np.zeros(3))


def test_keywords_that_the_function_lacks() -> None:
    with pytest.raises(InputError, match="has no parameter 'mehs'") as caught:
        shardc.trace(lambda x, scale: x * scale, np.zeros(3), scale=2.0, mehs={"data": 2})
    assert caught.value.fix == "did you mean mesh?"
    with pytest.raises(InputError, match="has no parameter 'y'") as caught:
        shardc.trace(lambda x: x, np.zeros(3), y=2.0)
    assert caught.value.fix == "its parameters are x"
    assert shardc.trace(lambda x, **rest: x + rest["y"], np.zeros(3), y=2.0).num_devices == 1


def test_programs_save_their_text_and_run_from_it(tmp_path: Path) -> None:
    program = shardc.trace(step, *arguments())
    path = tmp_path / "step.hlo"
    path.write_text(program.as_text(), encoding="utf-8")
    again = shardc.load(path)
    assert again.module.results == program.module.results


def test_one_trace_of_a_long_program_is_quick() -> None:
    def deep(x: Any) -> Any:
        for _ in range(500):
            x = np.tanh(x @ x) + 1
        return x

    program = shardc.trace(deep, ShapeDtype((8, 8), "float32"))
    assert sum(1 for i in program.module.instructions() if i.opcode == "dot") == 1  # In a loop.
    assert program.seconds["read"] < 5


def test_arguments_that_do_not_fit_are_told_by_number_and_name() -> None:
    def mlp(x: Any, up: Any, state: Any) -> Any:
        return x @ up + state["b"]

    x = np.ones((2, 2))
    traced = trace_function(mlp, [x, x, {"b": x}], {}, ["x", "up", "state"])
    for given, said in (
        ([x, x], r"2 arguments given, mlp takes 3: x, up, state"),
        ([x, [x, x], {"b": x}], r"up is a list of 2, and was an array"),
        ([x, x, {"c": x}], r"c is unexpected in state, and b is missing"),
    ):
        with pytest.raises(InputError, match=said):
            traced.flatten(given)
    with pytest.raises(AnnotationError, match=r"has 2 specs, which does not fit 3 values \(x, up, state\)"):
        shardc.trace(mlp, x, x, {"b": x}, mesh=MESH, in_shardings=(P(), P()))
    with pytest.raises(AnnotationError, match=r"write P\('data'\)"):
        shardc.trace(mlp, x, x, {"b": x}, mesh=MESH, in_shardings="data")
    program = shardc.trace(mlp, x, x, {"b": x}, mesh=MESH)
    with pytest.raises(InputError, match=r"memory is '1GB'.*\n.*fix: write memory=1000000000"):
        program.partition(memory="1GB")  # type: ignore[arg-type]
    with pytest.raises(AnnotationError, match="annotations are given as a list"):
        program.annotate([("x", P())])  # type: ignore[arg-type]
