"""Every option of every command: nonsense, negative, huge, not a number, empty: exit code 2 and one message."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from shardc.cli.app import app, main

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
#: These start something that lasts (a server, a demo, measurements, a job): their numbers are tried, not their words.
LASTING = ("serve", "demo", "calibrate", "mpiexec")
WORDS = ("", "nan", "-1", "inf", "9" * 30, "nonsense \u2603", "1e400", "a=b=c", "\x1b[0m", ",", "no/such/folder/file")
STEP = """HloModule t

ENTRY main {
  x = f32[4,4] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[4,4] add(x, x)
}
"""


def _options(name: str) -> list[Any]:
    return [p for p in COMMANDS[name].params if p.param_type_name == "option" and not p.is_flag]


def _try(name: str, option: Any, word: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = folder / "step.hlo"
    file.write_text(STEP)
    (folder / "budget.toml").write_text("[limits]\nwire_bytes = 1000\n")
    takes_file = any(p.param_type_name == "argument" and p.required for p in COMMANDS[name].params)
    line = [name, *([str(file)] if takes_file else [])]
    needed = {
        "report": str(folder / "out.html"),
        "compile": str(folder / "out"),
        "sweep": "2",
        "simulate": "h100-dgx:2",
        "auto": "h100-dgx",
        "visualize": "x",
        "check": str(folder / "budget.toml"),
    }
    for p in COMMANDS[name].params:
        if p.param_type_name == "option" and p.required and p is not option:
            line += [p.opts[0], needed[name]]
    start = time.monotonic()
    code = main([*line, option.opts[0], word])
    err = capfd.readouterr().err
    what = f"shardc {name} {option.opts[0]} {word!r}: {code}, {err[-400:]}"
    assert code in (0, 2), what
    assert "Traceback" not in err, what
    assert "bug in shardc" not in err, what
    assert (err.count("error:") == 1) == (code == 2), what
    assert time.monotonic() - start < 60, what


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in LASTING and _options(n)])
def test_an_option_of_each_command(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(name)
    for option in draw.sample(_options(name), min(2, len(_options(name)))):
        _try(name, option, draw.choice(WORDS), tmp_path, capfd)


@pytest.mark.full
@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in LASTING and _options(n)])
def test_all_options(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in _options(name):
        for word in WORDS:
            _try(name, option, word, tmp_path, capfd)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_numbers_are_numbers(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    for option in _options(name):
        if isinstance(option.default, (int, float)):
            for word in ("nan", "nonsense", "", "-1"):
                line = [name, *(["-n", "1"] if name == "mpiexec" and option.opts[0] != "-n" else [])]
                assert main([*line, option.opts[0], word, "no/such/file"]) == 2, (name, option.opts, word)
                assert capfd.readouterr().err.count("error:") == 1


def test_the_ones_that_were_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(STEP)
    (tmp_path / "plain").touch()
    for words, what in (
        (["run", str(file), "--seed", "-1"], "--seed"),
        (["run", str(file), "--mesh", "a+b=2"], "a mesh axis cannot be called 'a+b'"),
        (["run", str(file), "--tune", "inf"], "tune=inf"),
        (["run", str(file), "--inputs", str(tmp_path)], f"{tmp_path} is a folder"),
        (["mpiexec", "-n", "2", str(tmp_path / "plain")], "is not executable"),
        (["mpiexec", "-n", "2", str(tmp_path)], f"{tmp_path} is a folder"),
        (["opt", str(file), "--passes=fuse{limit=abc}"], "fix: write limit=96, the default"),
        (["simulate", str(file), "--machine", "h100-dgx", "--mesh", "x=1000000000"], "at most 16,777,216 devices"),
        (["mpiexec", "-n", "2", "nosuchprogram"], "there is no program 'nosuchprogram'"),
    ):
        assert main(words) == 2
        assert what in capfd.readouterr().err
