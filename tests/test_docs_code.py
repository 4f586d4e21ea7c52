"""Every block of code in README and docs runs, or is read by what reads it: Python, shell, TOML, JSON."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_pages import PAGES
from typer.main import get_command

from shardc.cli.app import app

ROOT = Path(__file__).resolve().parent.parent

#: What a reader of a page has before its code: a training step in JAX, its state and shardings.
STEP = """
import jax
import jax.numpy as jnp
import numpy as np
import shardc
from shardc import Mesh, P

def step(state, batch):
    def loss_of(w):
        return jnp.mean((jnp.tanh(batch @ w["w1"]) @ w["w2"]) ** 2)
    loss, slopes = jax.value_and_grad(loss_of)(state)
    return jax.tree.map(lambda w, s: w - 0.1 * s, state, slopes), loss

mesh = Mesh({"data": 2, "model": 2})
state = {"w1": np.ones((8, 16), np.float32), "w2": np.ones((16, 4), np.float32)}
batch = np.ones((4, 8), np.float32)
specs = state_specs = {"w1": P(None, "model"), "w2": P("model")}
"""


def pages() -> list[str]:
    return ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """Name and text of every block in these languages; numbers count within a page and a language."""
    for page in pages():
        found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for number, text in enumerate(text for language, text in found if language in languages):
            yield f"{page} {number}", text


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every line of a shell block, as words; comments and variables in front are left out."""
    for name, text in blocks("sh", "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                yield name, words


def test_all_languages_are_known() -> None:
    for page in pages():
        for language in re.findall(r"^```(\w+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE):
            assert language in ("python", "sh", "bash", "toml", "json", "text", "c"), f"{page}: {language}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "code"), [pytest.param(*b, id=b[0]) for b in blocks("python") if b[0].split()[0] not in PAGES]
)
def test_python(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "docs"}
    exec(compile(STEP, f"before {name}", "exec"), scope)
    exec(compile(code, name, "exec"), scope)
    if "loss" in scope:
        assert np.isfinite(np.asarray(scope["loss"]))


def test_shell_commands_have_the_options_that_are_written() -> None:
    """Of `shardc` itself, as its parser takes them; scripts of examples are there, and run in their own test."""
    root = get_command(app)
    count = 0
    for name, words in commands():
        if "shardc" in words[:5] and words[0] in ("shardc", "srun"):
            words = words[words.index("shardc") + 1 :]
            plain = [re.sub(r"^\[|\]$", "", w) for w in words[1:]]
            command = root.commands[words[0]]  # type: ignore[attr-defined]
            with contextlib.closing(command.make_context(words[0], plain)):
                count += 1
        elif words[0] == "python" and words[1].startswith("examples/"):
            assert (ROOT / words[1]).exists(), f"{name}: {words}"
        elif words[0] == "make":
            targets = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", targets, re.MULTILINE), f"{name}: {words}"
        else:
            assert words[0] in ("pip", "python", "mpirun", "export", "mkdir", "ln", "curl", "."), f"{name}: {words}"
    assert count > 20


@pytest.mark.parametrize(("name", "text"), [pytest.param(*b, id=b[0]) for b in blocks("toml")])
def test_toml(name: str, text: str) -> None:
    assert tomllib.loads(text), name


@pytest.mark.parametrize(("name", "text"), [pytest.param(*b, id=b[0]) for b in blocks("json")])
def test_json(name: str, text: str) -> None:
    assert json.loads(text), name
