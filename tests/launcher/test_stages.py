"""The Python API: stages, jit, saved executables; on virtual devices, against NumPy and JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.verify import verify_program
from shardc.cli.app import main
from shardc.hlo.errors import AnnotationError, InputError, ParseError, UnsupportedError
from shardc.launcher.arrays.meshes import as_mesh
from tests.cli.programs import MLP, PLAIN

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((8, 6)).astype(np.float32), RNG.standard_normal((6, 10)).astype(np.float32)


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    return path


def test_stages(mlp: Path) -> None:
    program = shardc.load(mlp)
    assert program.arg_names == ("x", "w")
    partitioned = program.propagate().partition()
    assert partitioned.num_devices == 4
    assert "all-reduce" in partitioned.as_text()
    assert partitioned.report()["collectives"]
    assert any("because" in entry for entry in partitioned.explain())
    assert partitioned.memory_analysis()["peak_bytes"] > 0
    assert "by annotation" in "\n".join(program.propagate().explain("x"))
    assert partitioned.explain("x") == program.propagate().explain("x")
    loss, t = partitioned.compile("cpu")(X, W)
    assert isinstance(t, shardc.Array)
    np.testing.assert_allclose(np.asarray(t), np.tanh(X @ W), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(float(loss), np.tanh(X @ W).sum(), rtol=1e-4, atol=1e-5)
    assert [s.data.shape for s in t.addressable_shards] == [(4, 5)] * 4


def test_annotations_and_meshes(tmp_path: Path) -> None:
    (tmp_path / "p.hlo").write_text(PLAIN)
    program = shardc.load(tmp_path / "p.hlo")
    annotated = program.annotate({"x": P("a", "b"), "n": "a+b"}, mesh={"a": 2, "b": 3})
    assert annotated.mesh == Mesh({"a": 2, "b": 3})
    assert program.mesh is None
    assert all(r["agrees"] for r in verify_program(annotated, trials=2))
    bigger = annotated.annotate(mesh=Mesh({"b": 5}))
    assert bigger.mesh == Mesh({"a": 2, "b": 5})
    assert all(r["agrees"] for r in verify_program(bigger))
    with pytest.raises(AnnotationError, match="need a mesh"):
        program.annotate({"x": P("a")})
    with pytest.raises(AnnotationError, match="'y'"):
        annotated.annotate({"x": P("y")})
    with pytest.raises(AnnotationError, match="is not a mesh"):
        program.annotate(mesh=4)


def test_executables_are_saved_whole(mlp: Path, tmp_path: Path) -> None:
    compiled = shardc.load(mlp).compile()
    compiled.save(tmp_path / "mlp.shardc")
    again = shardc.load_executable(tmp_path / "mlp.shardc")
    for a, b in zip(compiled(X, W), again(X, W), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with pytest.raises(InputError, match="does not exist"):
        compiled.save(tmp_path / "no" / "x")
    (tmp_path / "step.py").write_text("import jax\n")
    with pytest.raises(InputError, match="would overwrite the Python file"):
        compiled.save(tmp_path / "step.py")
    with pytest.raises(InputError, match="there is no file"):
        shardc.load_executable(tmp_path / "none")


def test_executables_and_programs_are_told_apart(mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "mlp.shardc"
    shardc.load(mlp).compile().save(saved)
    with pytest.raises(ParseError, match="is an executable of shardc") as caught:
        shardc.load(saved)
    assert "shardc.load_executable(path)" in str(caught.value.fix)
    for command in ("explain", "run", "visualize"):
        assert main([command, str(saved), *(["--value", "x"] if command == "visualize" else [])]) == 2
        assert "shardc.load_executable(path)" in capsys.readouterr().err
    np.savez(tmp_path / "arrays.npz", manifest=np.ones(2))
    with pytest.raises(ParseError, match="is a zip archive"):
        shardc.load(tmp_path / "arrays.npz")
    with pytest.raises(InputError, match="is not an executable of shardc") as wrong:
        shardc.load_executable(mlp)
    assert "shardc.load(path)" in str(wrong.value.fix)


def test_what_is_not_there_yet_says_so(mlp: Path) -> None:
    partitioned = shardc.load(mlp).partition()
    with pytest.raises(UnsupportedError, match="unknown compile target 'tpu'"):
        partitioned.compile("tpu")
    with pytest.raises(UnsupportedError, match="unknown compile target 'tpu'"):
        shardc.load(mlp).compile("tpu")
    with pytest.raises(InputError, match="only for a JAX function"):
        partitioned.compile()(x=X, w=W)


def test_jax_meshes() -> None:
    jax = pytest.importorskip("jax")
    mesh = Mesh({"data": 2, "model": 4})
    assert as_mesh(mesh.to_jax()) == mesh
    assert as_mesh(jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))) == Mesh({"a": 1, "b": 1})


ALIKE_HLO = """HloModule m
ENTRY main {
  weights.1 = f32[4,4] parameter(0), metadata={op_name="XLA_Args"}
  batch.2 = f32[4,4] parameter(1), metadata={op_name="XLA_Args"}
  rate.3 = f32[] parameter(2)NAMED
  ROOT d = f32[4,4] dot(weights.1, batch.2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
ALIKE_MLIR = """func.func public @main(%a: tensor<4x4xf32> loc("XLA_Args"), %b: tensor<4x4xf32> loc("XLA_Args"),
    %c: tensor<f32>NAMED) -> tensor<4x4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}"""


def test_values_of_other_types_are_told(mlp: Path) -> None:
    with pytest.raises(InputError, match="takes the path of a file, but was given an int"):
        shardc.load(3)
    program = shardc.load(mlp)
    for tune in ("x", True, -1.0):
        with pytest.raises(InputError, match="tune="):
            program.compile(tune=tune)
    propagated = program.propagate()
    with pytest.raises(InputError, match="memory= is the limit of a plan"):
        propagated.partition(plan="propagated", memory=1e9)
    partitioned = propagated.partition()
    for options in ({"remedies": "x"}, {"remedies": True}, {"tries": 1.5}, {"seconds": "long"}, {"seconds": -1}):
        with pytest.raises(InputError, match=f"{next(iter(options))} is"):
            partitioned.explanation(**options)
    with pytest.raises(InputError, match=r"needs the ending \.svg"):
        partitioned.memory_picture("memory.png")


@pytest.mark.parametrize("text", [ALIKE_HLO, ALIKE_MLIR], ids=["hlo", "mlir"])
@pytest.mark.parametrize("named", [True, False])
def test_a_name_that_several_arguments_have_is_none(text: str, named: bool, tmp_path: Path) -> None:
    """TensorFlow calls every argument XLA_Args: positions and the instructions' own names tell them apart."""
    if text is ALIKE_MLIR:
        pytest.importorskip("jaxlib")
    word = 'loc("rate")' if text is ALIKE_MLIR else ', metadata={op_name="rate"}'
    (tmp_path / "p").write_text(text.replace("NAMED", word if named else ""))
    program = shardc.load(tmp_path / "p")
    own = tuple(p.name for p in program.module.parameters)
    fallback = own if text is ALIKE_HLO and not named else ("arg0", "arg1", "rate" if named else "arg2")
    assert program.arg_names == fallback
    for names in (own, program.arg_names, ("arg0", "arg1")):
        for number, name in enumerate(names[:2]):
            annotated = program.annotate({name: P("d")}, mesh={"d": 2}).module.parameters
            assert [p.sharding is not None for p in annotated] == [n == number for n in range(3)]
    with pytest.raises(AnnotationError, match="no argument, result or value is named 'XLA_Args'"):
        program.annotate({"XLA_Args": P("d")}, mesh={"d": 2})


class TestJit:
    """`shardc.jit` against `jax.jit`."""

    @pytest.fixture(autouse=True)
    def _jax(self) -> None:
        pytest.importorskip("jax")

    mesh = Mesh({"data": 2, "model": 2})

    def parameters(self) -> dict[str, Any]:
        return {"w": W.copy(), "b": np.zeros(10, np.float32)}

    @staticmethod
    def step(params: dict[str, Any], x: Any, rate: Any) -> Any:
        import jax
        import jax.numpy as jnp

        def loss(p: Any) -> Any:
            return jnp.mean(jnp.tanh(x @ p["w"] + p["b"]) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

    def test_training_matches_jax(self) -> None:
        import jax

        specs = {"w": P(None, "model"), "b": P("model")}
        ours = shardc.jit(self.step, mesh=self.mesh, in_shardings=(specs, P("data"), None), donate_argnums=0)
        theirs = jax.jit(self.step)
        a, b = self.parameters(), self.parameters()
        for _ in range(3):
            previous = a
            a, mine = ours(a, X, 0.5)
            b, other = theirs(b, X, 0.5)
            np.testing.assert_allclose(float(mine), float(other), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(a["w"]), b["w"], rtol=1e-4, atol=1e-6)
        assert tuple(a["w"].sharding.spec) == (None, "model")
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(previous["w"])

    def test_layouts_of_arrays_are_kept(self) -> None:
        specs = {"w": P(None, "model"), "b": P("model")}
        first = shardc.jit(self.step, mesh=self.mesh, in_shardings=(specs, P("data"), None))
        params, _ = first(self.parameters(), X, 0.5)
        second = shardc.jit(self.step, mesh=self.mesh)
        assert str(second.program(params, X, 0.5).propagate().module.parameters[1].sharding) == "[{}, {model}]"
        again, _ = second(params, X, 0.5)
        want, _ = first(params, X, 0.5)
        np.testing.assert_allclose(np.asarray(again["w"]), np.asarray(want["w"]), rtol=1e-5)

    def test_static_arguments_and_structures(self) -> None:
        calls = []

        def f(x: Any, power: int, *, scale: float = 1.0) -> Any:
            calls.append(power)
            return {"y": (x**power) * scale}

        g = shardc.jit(f, mesh=self.mesh, static_argnames=("power", "scale"))
        np.testing.assert_allclose(np.asarray(g(X, 2)["y"]), X**2, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(g(X, power=3)["y"]), X**3, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(g(X, 2, scale=2.0)["y"]), 2 * X**2, rtol=1e-6)
        g(X, 2)
        assert calls == [2, 3, 2]
        g(X[:4], 2)
        assert calls == [2, 3, 2, 2]

    def test_decorator(self) -> None:
        @shardc.jit(mesh=Mesh({"data": 4}), in_shardings=P("data"))
        def double(x: Any) -> Any:
            """Twice."""
            return x + x

        assert (double.__name__, double.__doc__) == ("double", "Twice.")
        np.testing.assert_array_equal(np.asarray(double(X)), X + X)

    def test_wrong_use(self) -> None:
        with pytest.raises(InputError, match="donate_argnames names 'zz'"):
            shardc.jit(self.step, donate_argnames="zz")
        with pytest.raises(AnnotationError, match="needs a mesh"):
            shardc.jit(lambda x: x, in_shardings=P("data"))(X)
        with pytest.raises(AnnotationError, match=r"no axis 'dta'\n  where: in_shardings\[1\]\['w'\], dimension 0"):
            shardc.jit(self.step, mesh=Mesh({"data": 2}), in_shardings=(None, {"w": P("dta")}))
        with pytest.raises(InputError, match=r"no option 'in_sharding'\n  fix: did you mean in_shardings\?"):
            shardc.jit(self.step, in_sharding=P("data"))


class TestFilesFromJax:
    """What JAX exports is read back in every form."""

    @pytest.fixture(autouse=True)
    def _jax(self) -> None:
        pytest.importorskip("jax")

    def exported(self) -> Any:
        import jax
        import jax.numpy as jnp

        mesh = Mesh({"data": 4}).to_jax()
        sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        f = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(axis=0), in_shardings=(sharded, None))
        return jax.export.export(f, platforms=["cpu"])(X, W)

    @pytest.mark.parametrize("form", ["text", "bytecode", "serialized"])
    def test_forms(self, form: str, tmp_path: Path) -> None:
        if form == "serialized":
            pytest.importorskip("flatbuffers")
        exported = self.exported()
        path = tmp_path / "program"
        if form == "text":
            path.write_text(exported.mlir_module())
        else:
            path.write_bytes(exported.mlir_module_serialized if form == "bytecode" else exported.serialize())
        program = shardc.load(path)
        partitioned = program.partition()
        assert partitioned.num_devices == 4
        assert [c["op"] for c in partitioned.report()["collectives"]] == ["all-reduce"]
        np.testing.assert_allclose(np.asarray(partitioned.compile()(X, W)), np.tanh(X @ W).sum(0), rtol=1e-4, atol=1e-5)
        if form != "serialized":
            assert "sdy.sharding" in program.propagate().as_stablehlo()


TWO_LAYOUTS = """module @m {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                         %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
      -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %0 = call @f(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = call @f(%b) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  func.func private @f(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.sine %x : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}"""


def test_a_function_in_two_layouts_is_written_twice(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    file = tmp_path / "two.mlir"
    file.write_text(TWO_LAYOUTS)
    text = shardc.load(file).propagate().as_stablehlo()
    assert text.count("func.func private @f") == 2
    sines = [line.split("loc(")[0] for line in text.splitlines() if "stablehlo.sine" in line]
    assert ['[{"x"}, {}]' in line for line in sines] == [True, False]
    assert ['[{}, {"y"}]' in line for line in sines] == [False, True]


def test_calls_with_several_results_are_written(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    file = tmp_path / "two.mlir"
    text = TWO_LAYOUTS.replace("%0 = call @f(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>", "%0:2 = call @f(%a) : F")
    text = text.replace("%1 = call @f(%b) : (tensor<8x8xf32>) -> tensor<8x8xf32>", "%1:2 = call @f(%b) : F")
    text = text.replace("return %0, %1", "return %0#0, %1#1").replace("return %0 :", "return %0, %0 :")
    text = text.replace("(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {", "(%x: tensor<8x8xf32>) -> T {")
    text = text.replace("return %0, %0 : tensor<8x8xf32>", "return %0, %0 : tensor<8x8xf32>, tensor<8x8xf32>")
    two = "(tensor<8x8xf32>, tensor<8x8xf32>)"
    file.write_text(text.replace(": F", f": (tensor<8x8xf32>) -> {two}").replace("-> T", f"-> {two}"))
    written = shardc.load(file).propagate().as_stablehlo()
    assert written.count("func.func private @f") == 2
    called = [line.split("call @")[1].split("(")[0] for line in written.splitlines() if "call @" in line]
    assert len(set(called)) == 2
