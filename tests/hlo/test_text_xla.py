"""Reader and printer against XLA: its own test programs, and the programs that JAX makes."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from xla_judge import judge

from shardc.hlo.errors import ShardcError, UnsupportedError
from shardc.hlo.notation import parse_groups, print_groups
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo

JAXLIB = tuple(int(n) for n in version("jaxlib").split(".")[:2])

#: Accepted by XLA and refused by us on purpose: values that the text leaves out, and a done without a start.
_LEFT_OUT = ("left out", "without a bound", "must belong to")


def check_texts(texts: dict[str, str]) -> None:
    """Each is read, printed, read again as the same module, and accepted by XLA, exactly when XLA accepts it.

    XLA before 0.12 does not know the newest spellings, which we read, and lets a wrong window pass: there a few
    answers may differ.
    """
    before = judge(texts)
    printed: dict[str, str] = {}
    problems: list[str] = []
    differing: list[str] = []
    for name, text in texts.items():
        accepted = before[name].accepted
        try:
            module = read_hlo(text, name)
        except ShardcError as e:
            if accepted and not (any(w in str(e) for w in _LEFT_OUT)):
                differing.append(f"{name}: refused: {e}")
            continue
        if not accepted:
            differing.append(f"{name}: read, but XLA says {before[name].error}")
            continue
        printed[name] = print_module(module)
        found = difference(module, read_hlo(printed[name]))
        if found is not None:
            problems.append(f"{name}: {found}")
    after = judge(printed)
    problems += [f"{n}: printed, but XLA says {v.error}" for n, v in after.items() if not v.accepted]
    if JAXLIB >= (0, 12) or len(differing) > 0.03 * len(texts):
        problems += differing
    assert not problems, "\n".join(problems)


def sample(folder: Path, count: int | None) -> dict[str, str]:
    files = sorted((folder / "hlo").glob("*.hlo"))
    if count is not None:
        files = random.Random(20261121).sample(files, min(count, len(files)))
    return {f.stem: f.read_text(encoding="utf-8") for f in files}


def test_a_slice_of_xlas_own_programs(conformance: Path) -> None:
    check_texts(sample(conformance, 150))


@pytest.mark.full
def test_all_of_xlas_own_programs(conformance: Path) -> None:
    check_texts(sample(conformance, None))


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


def test_constants_that_xla_leaves_out_are_refused() -> None:
    text = "ENTRY e {\n  ROOT x = f32[64] constant({...})\n}"
    with pytest.raises(UnsupportedError, match="left out") as caught:
        read_hlo(text)
    assert str(caught.value.where) == "<input>:2:34"
    literal = read_hlo(text, allow_elided=True).entry.root.attrs["literal"]
    assert literal.array.shape == (64,) and not literal.array.any()
