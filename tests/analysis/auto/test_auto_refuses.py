"""What `shardc.auto` refuses: one error of our own, with what is wrong and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc import Mesh, P
from shardc.cli.app import main
from shardc.frontends.load import load_program
from shardc.hlo.errors import ShardcError


def product() -> shardc.Program:
    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    return shardc.from_jax(f, jax.ShapeDtypeStruct((64, 128), "float32"), jax.ShapeDtypeStruct((128, 256), "float32"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, ("no mesh", "devices=8")),
        ({"devices": 0}, ("devices is 0, which", "1 or more devices")),
        ({"devices": -4}, ("devices is -4, which", "1 or more devices")),
        ({"devices": 2.5}, ("devices is 2.5, which", "1 or more devices")),
        ({"devices": "4"}, ("devices is '4', which", "1 or more devices")),
        ({"devices": True}, ("devices is True, which", "1 or more devices")),
        ({"devices": 4, "mesh": Mesh({"x": 4})}, ("devices= and mesh= exclude each other", "one of them")),
        ({"devices": 4, "memory": 0}, ("memory is 0, which", "write memory=4e9")),
        ({"devices": 4, "memory": -1.0}, ("memory is -1.0, which", "write memory=4e9")),
        ({"devices": 4, "memory": float("nan")}, ("memory is nan, which", "write memory=4e9")),
        ({"devices": 4, "memory": "40GiB"}, ("memory is '40GiB'", "write memory=42949672960")),
        ({"devices": 4, "machine": "h100-dgxx"}, ("h100-dgxx", "h100-dgx")),
        ({"devices": 4, "machine": "no/such/file.toml"}, ("no/such/file.toml",)),
        ({"devices": 4, "keep": "weights"}, ("weights",)),
        ({"devices": 4, "keep": ["x", "ww"]}, ("ww",)),
    ],
    ids=str,
)
def test_what_is_asked_is_checked(asked: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ShardcError) as raised:
        shardc.auto(product(), **{"machine": "h100-dgx", **asked})
    for word in words:
        assert word in str(raised.value)


def test_too_little_memory_says_how_much_is_missing() -> None:
    """The argument alone takes 32 KiB on a device, in pieces: 4 KiB are too few however it lies."""
    with pytest.raises(ShardcError, match=r"within 4\.0 KiB per device.*too much") as raised:
        shardc.auto(product(), machine="h100-dgx", mesh=Mesh({"x": 4}), memory=4096)
    assert "fix:" in str(raised.value)


def test_a_program_that_is_partitioned_has_no_plan() -> None:
    local = product().annotate({"x": P("d")}, mesh=Mesh({"d": 4})).partition()
    program = load_program(local.as_text().encode(), "local.hlo")
    with pytest.raises(ShardcError, match="already partitioned"):
        shardc.auto(program, machine="h100-dgx", mesh=Mesh({"d": 4}))


def test_what_is_no_program_is_refused() -> None:
    for given in (None, 3, jnp.tanh, b"HloModule m"):
        with pytest.raises(ShardcError):
            shardc.auto(given, machine="h100-dgx", devices=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--machine", "h100-dgx"], "the number of devices is missing"),
        (["--machine", "h100-dgx", "--devices", "0"], "--devices"),
        (["--machine", "h100-dgx", "--devices", "4", "--mesh", "x=4"], "exclude each other"),
        (["--machine", "h100-dgx", "--devices", "4", "--memory", "much"], "much"),
        (["--machine", "h100-dgx", "--devices", "4", "--memory", "4kB"], "too much"),
        (["--machine", "h100-dgx", "--devices", "4", "-o", "plan.txt"], "plan.txt"),
        (["--machine", "h100-dgx", "--devices", "4", "-o", "no/such/folder/plan.py"], "no/such/folder"),
        (["--machine", "none-such", "--devices", "4"], "none-such"),
    ],
    ids=str,
)
def test_the_command_says_it_once(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("step.hlo").write_text(product().as_text())
    assert main(["auto", "step.hlo", *options]) == 2
    err = capsys.readouterr().err
    assert err.count("error:") == 1 and words in err and "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["step.hlo"]
