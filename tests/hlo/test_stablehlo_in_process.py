"""Programs that jaxlib made in this process are read in it: the same modules as another process reads."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jaxlib.mlir.dialects import stablehlo  # noqa: E402

from shardc.hlo.errors import ParseError  # noqa: E402
from shardc.hlo.ir.ir import Module  # noqa: E402
from shardc.hlo.stablehlo.mlir.bindings import SharedContext, bytecode, shared_context  # noqa: E402
from shardc.hlo.stablehlo.mlir.extract import plain_form  # noqa: E402
from shardc.hlo.stablehlo.reader import module_from_bytes, read_stablehlo  # noqa: E402
from shardc.hlo.text.printer import print_module  # noqa: E402

FUNCTIONS = {
    "a sum": lambda x: jnp.sum(x * 2.0, axis=0),
    "a sort": lambda x: jnp.sort(x, axis=-1)[::-1],
    "an expansion": lambda x: jax.scipy.special.digamma(x) + jnp.sinh(x),
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + i * x, x),
    "a constant": lambda x: x + jnp.arange(12.0).reshape(3, 4),
}


def data_of(name: str) -> bytes:
    return bytecode(jax.jit(FUNCTIONS[name]).lower(jax.ShapeDtypeStruct((3, 4), jnp.float32)).compiler_ir("stablehlo"))


def text(module: Module) -> str:
    return print_module(module)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_module(name: str) -> None:
    data = data_of(name)
    assert text(module_from_bytes(data)) == text(read_stablehlo(data))


def test_a_portable_artifact() -> None:
    lowered = jax.jit(jnp.sort).lower(jax.ShapeDtypeStruct((3, 4), jnp.float32))
    version = stablehlo.get_minimum_version()
    data = stablehlo.serialize_portable_artifact(lowered.compiler_ir("stablehlo"), version)
    assert text(module_from_bytes(data)) == text(read_stablehlo(data))


def test_the_context_is_made_anew_after_some_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    data, shared, made = data_of("a sum"), SharedContext(), []
    monkeypatch.setattr(shared, "limit", len(data))
    for _ in range(6):
        with shared.parse(data) as module:
            made.append(shared._context)
            assert plain_form(shared.bindings, module)["module"] == "jit__lambda"
    assert [a is b for a, b in pairwise(made)] == [True, False, True, False, True]


def test_threads_read_one_after_the_other() -> None:
    wanted = {name: text(module_from_bytes(data_of(name))) for name in FUNCTIONS}
    data, found = {name: data_of(name) for name in FUNCTIONS}, []

    def read(name: str) -> None:
        found.extend(text(module_from_bytes(data[name])) == wanted[name] for _ in range(20))

    threads = [threading.Thread(target=read, args=(name,)) for name in FUNCTIONS]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 100
    assert all(found)


def test_what_is_no_program_is_an_error_with_its_place() -> None:
    with pytest.raises(ParseError, match=r"p\.mlir:2"):
        module_from_bytes(b"func.func public @main() {\n  nonsense\n}", "p.mlir")
    assert text(module_from_bytes(data_of("a sum")))  # the context is as good as before
    assert shared_context() is shared_context()
