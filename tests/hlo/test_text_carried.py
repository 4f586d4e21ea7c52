"""Text that carries all of a module: the same executable comes of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.compiler.cache.cache import module_key
from shardc.compiler.cache.serialize import to_bytes
from shardc.frontends.load import load_program
from shardc.hlo.config import Config
from shardc.hlo.errors import ParseError
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.carried import print_carried, restore_carried
from shardc.hlo.text.equal import difference
from shardc.hlo.text.reader import read_hlo
from shardc.stages.stages import as_stage

ROOT = Path(__file__).parents[2]
MESH = Mesh({"data": 2, "model": 2})


def carried(module: Module) -> Module:
    return load_program(print_carried(module).encode(), "").module


def executable(program: shardc.Program, folder: Path) -> bytes:
    config = Config(cache_dir=folder)
    made = replace(program, config=config).partition().compile().executable
    return to_bytes(replace(made, seconds={}))


def traced(function: Any, *shardings: Any, **options: Any) -> shardc.Program:
    specs = ShapeDtype((16, 8), "float32"), ShapeDtype((8, 16), "float32")
    return shardc.trace(function, *specs, in_shardings=shardings or None, **options)


def manual(name: str) -> Any:
    """Functions of JAX with manual parts: all ways into and out of one, loops inside and around, indices of devices."""
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"))
    lax, jnp, data = jax.lax, jax.numpy, jax.sharding.PartitionSpec("data")
    both, none = jax.sharding.PartitionSpec("data", "model"), jax.sharding.PartitionSpec()

    def ring(c: Any) -> Any:
        return lax.ppermute(jnp.tanh(c), "data", [(0, 1), (1, 0)])

    def several(x: Any) -> Any:
        return (x + 1, lax.all_gather(x, "model"), ring(x))

    inside = {
        "pipeline": (ring, data, data),
        "several": (several, data, (data, data, data)),
        "loop": (lambda x: lax.scan(lambda c, _: (ring(c), c.sum()), x, None, length=3), data, (data, none)),
        "index": (lambda x: x + lax.axis_index("data"), data, data),
        "sum": (lambda x: lax.psum(x, ("data", "model")), both, none),
    }
    function, into, out = inside.get(name, inside["pipeline"])
    options: dict[str, Any] = {"axis_names": {"data"}} if name == "partly" else {"check_vma": False}
    mapped = jax.shard_map(function, mesh=mesh, in_specs=into, out_specs=out, **options)
    around = (lambda x: lax.fori_loop(0, 3, lambda _, c: mapped(c), x)) if name == "around" else mapped
    return shardc.jit(around, mesh=MESH).program(np.ones((16, 8), np.float32))


MANUAL = ("pipeline", "several", "loop", "around", "index", "sum", "partly")

PROGRAMS = {
    "names": lambda: traced(lambda w, x: {"a": x @ w, "b": [w]}, P(None, "model"), P("data"), mesh=MESH),
    "no shardings": lambda: traced(lambda w, x: x @ w, mesh=MESH),
    "no mesh": lambda: traced(lambda w, x: np.tanh(x @ w)),
    "donated": lambda: traced(lambda w, x: (w + 1, x), P("data"), P("model"), mesh=MESH, donate_argnums=0),
    "open": lambda: traced(lambda w, x: x @ w, P(P.UNCONSTRAINED, "model"), P(("data", "model")), mesh=MESH),
    "devices": lambda: traced(lambda w, x: x @ w, P("data"), None, mesh=Mesh({"data": 4}, (3, 2, 1, 0))),
    "text": lambda: shardc.load(ROOT / "examples" / "hlo_annotated" / "mlp.hlo"),
    "mlir": lambda: shardc.load(ROOT / "tests" / "sharding" / "rules_program.mlir"),
    "demo": lambda: shardc.load(ROOT / "shardc" / "demo" / "step.hlo"),
    **{f"manual {name}": partial(manual, name) for name in MANUAL},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]()
    module, read = program.module, carried(program.module)
    assert difference(module, read) is None or name in ("text", "demo")  # their places become sources
    assert (read.mesh, read.arg_names, read.result_names) == (module.mesh, module.arg_names, module.result_names)
    assert read.uneven_interface is module.uneven_interface
    assert [i.name for i in read.instructions()] == [i.name for i in module.instructions()]
    assert [i.source for i in read.instructions()] == [i.source for i in module.instructions()]
    assert [i.sharding for i in read.instructions()] == [i.sharding for i in module.instructions()]
    assert module_key(read, None) == module_key(module, None)
    assert print_carried(carried(read)) == print_carried(read)
    assert "frontend_attributes" not in read.attrs or name == "mlir"


@pytest.mark.parametrize("name", ["names", "donated", "open", "text", "manual pipeline", "manual loop"])
def test_the_same_executable(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]()
    there = as_stage(load_program(print_carried(program.module).encode(), ""))
    assert executable(program, tmp_path / "a") == executable(there, tmp_path / "b")


def test_odd_names() -> None:
    program = traced(lambda w, x: {'quote " and \\ and }, {': x @ w, "new\nline, é": w}, P("data"), None, mesh=MESH)
    assert carried(program.module).result_names == program.module.result_names


def test_other_texts_stay_as_they_are() -> None:
    module = read_hlo('HloModule m, frontend_attributes={a="b"}\n\nENTRY e {\n  ROOT %x = f32[2] parameter(0)\n}\n')
    assert restore_carried(module) is module
    own = carried(module.with_(result_names=("x",), mesh=Mesh({"a": 2})))
    assert own.attrs["frontend_attributes"] == (("a", "b"),) and own.result_names == ("x",)


@pytest.mark.parametrize(
    "header",
    [
        'shardc.results="nonsense"',
        'shardc.results="[1]"',
        'shardc.results="[]",shardc.arguments="[\\"a\\",\\"b\\"]"',
        'shardc.results="[\\"a\\",\\"b\\"]"',
        'shardc.results="[]",shardc.mesh="[[[\\"a\\",0]],null,\\"m\\"]"',
        'shardc.results="[]",shardc.mesh="[[[\\"a\\",2]],[0],\\"m\\"]"',
        'shardc.results="[]",shardc.mesh="[]"',
    ],
)
def test_what_nobody_wrote(header: str) -> None:
    text = f"HloModule m, frontend_attributes={{{header}}}\n\nENTRY e {{\n  ROOT %x = f32[2] parameter(0)\n}}\n"
    with pytest.raises(ParseError):
        restore_carried(read_hlo(text))
