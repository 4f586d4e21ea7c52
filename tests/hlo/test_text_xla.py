"""Reader and printer against XLA: its own test programs, and the programs that JAX makes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from xla_judge import judge

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.text.equal import difference
from shardc.hlo.text.notations.tiles import parse_groups, print_groups
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify


def check_texts(texts: dict[str, str]) -> None:
    """Each is read, printed, read again as the same module, and accepted by XLA."""
    printed: dict[str, str] = {}
    for name, text in texts.items():
        module = read_hlo(text, name)
        printed[name] = print_module(module)
        assert difference(module, read_hlo(printed[name])) is None, name
    problems = {n: v.error for n, v in judge(printed).items() if not v.accepted}
    assert not problems


_PROGRAMS = """
import json, os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
at = lambda *spec: NamedSharding(mesh, P(*spec))

def loss(w, x):
    def layer(c, w):
        c = jax.lax.with_sharding_constraint(jax.nn.gelu(c @ w), at("data", "model"))
        return c, c.max()
    y, peaks = jax.lax.scan(layer, x, w)
    noise = jax.random.normal(jax.random.key(0), y.shape)
    logits = jax.nn.log_softmax(y + noise, axis=-1)
    top, _ = jax.lax.top_k(logits, 2)
    image = jnp.reshape(y, (1, 8, 16, 1))
    conv = jax.lax.conv_general_dilated(image, jnp.ones((3, 3, 1, 2)), (1, 1), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    picked = logits[jnp.arange(8), jnp.argmax(y, axis=-1)]
    return jnp.sum(jnp.sort(picked)) + top.sum() + conv.sum() + jax.lax.cond(peaks.sum() > 0, jnp.sin, jnp.cos, y[0, 0])

step = jax.jit(jax.value_and_grad(loss), in_shardings=(at(None, None, "model"), at("data", None)),
               out_shardings=(at(), at(None, None, "model")), donate_argnums=0)
lowered = step.lower(jnp.ones((3, 16, 16)), jnp.ones((8, 16)))
hlo = lowered.compiler_ir("hlo")
print("TEXTS" + json.dumps({
    "lowered": lowered.as_text(dialect="hlo"),
    "debug": hlo.get_hlo_module().to_string(),
    "compiled": lowered.compile().as_text(),
}))
"""


@pytest.fixture(scope="module")
def jax_texts() -> dict[str, str]:
    pytest.importorskip("jax")
    child = subprocess.run([sys.executable, "-c", _PROGRAMS], text=True, capture_output=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    line = next(x for x in child.stdout.splitlines() if x.startswith("TEXTS"))
    texts: dict[str, str] = json.loads(line.removeprefix("TEXTS"))
    return texts


def test_programs_from_jax(jax_texts: dict[str, str]) -> None:
    check_texts(jax_texts)


def test_xla_sees_the_same_program(jax_texts: dict[str, str]) -> None:
    """With names made canonical, XLA prints our text as it prints the original."""
    ours = {name: print_module(read_hlo(text)) for name, text in jax_texts.items()}
    before, after = judge(jax_texts), judge(ours)
    for name in jax_texts:
        assert canonical(after[name].printed) == canonical(before[name].printed)


_MESH_GROUPS = re.compile(r"(?<=replica_groups=)mesh\[[^\]]*\][^{]*\{[^}]*\}")


def canonical(text: str) -> str:
    """Groups in one notation, and no names of parameters in signatures, which canonical printing leaves."""
    text = _MESH_GROUPS.sub(lambda m: print_groups(parse_groups(m.group())), text)
    return re.sub(r"([(,] ?)[\w.\-]+: ", r"\1", text)


def test_source_lines_come_from_stack_tables(jax_texts: dict[str, str]) -> None:
    module = read_hlo(jax_texts["compiled"])
    sources = {i.source for i in module.instructions() if i.metadata is not None}
    assert any(re.fullmatch(r"<string>:\d+", s) for s in sources), sources
    assert module.num_partitions == 8
    assert any(i.opcode in {"all-gather", "all-reduce"} for i in module.instructions())


def test_what_text_leaves_out_can_be_read_and_printed_not_run() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[64] constant({...})\n  ROOT t = tuple(x, (f32[2]) constant(({...})))\n}"
    module = read_hlo(text, "m.hlo")
    check_texts({"left out": text, "unbounded": "HloModule m\n\nENTRY e {\n  ROOT x = f32[?,<=3]{0,1} parameter(0)\n}"})
    assert "f32[64] constant({...})" in print_module(module)
    with pytest.raises(UnsupportedError, match="left out") as caught:
        evaluate(module, [])
    assert str(caught.value.where) == "%x, m.hlo:4:25"
    with pytest.raises(UnsupportedError, match="without a bound"):
        verify(read_hlo("ENTRY e { ROOT x = f32[?] parameter(0) }"))
