"""What `types_in_bytecode` says of portable artifacts agrees with what MLIR prints of them."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir._mlir_libs import _stablehlo as stablehlo

from shardc.frontends.pjrt.border import mentions_border
from shardc.hlo.stablehlo.mlir.bytecode import types_in_bytecode

BODIES = {
    "": "return %x : tensor<4xf32>",
    "token": "%t = stablehlo.create_token : !stablehlo.token\n return %x : tensor<4xf32>",
    "many": "".join(
        f"%c{n} = stablehlo.constant dense<1.0> : tensor<{n + 1}x3xf32>\n" for n in range(300)
    ) + "return %x : tensor<4xf32>",
}  # fmt: skip


def artifact(text: str) -> bytes:
    return bytes(stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version()))


@pytest.mark.parametrize("name", BODIES)
def test_types_are_those_of_the_text(name: str) -> None:
    text = f"func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {BODIES[name]} }}"
    tensors = len(set(re.findall(r"tensor<.*?>", text)))
    ranked = [t for t in types_in_bytecode(artifact(text)) if t[0] == 20 << 1 | 1]
    assert len(ranked) == tensors
    assert mentions_border(artifact(text)) == (name == "token")


def test_a_token_that_a_program_is_given_is_seen() -> None:
    token = jax.lax.create_token(None)
    for arguments, seen in (((jnp.ones(3), token), True), ((jnp.ones(3), jnp.ones(2)), False)):
        lowered = jax.jit(lambda *values: values).lower(*arguments)
        assert mentions_border(artifact(lowered.as_text())) == seen


def test_what_is_no_bytecode_has_no_types() -> None:
    assert list(types_in_bytecode(b"module {}")) == []
