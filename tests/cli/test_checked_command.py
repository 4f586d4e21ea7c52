"""Options that would have no effect are refused, with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from shardc.cli.app import app, main
from shardc.cli.checked_command import NEEDS, RULES_OUT
from shardc.compiler.measured import write_measured
from tests.cli.programs import MLP, PLAIN

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp.hlo").write_text(MLP)
    Path("plain.hlo").write_text(PLAIN)


def test_the_table_names_options_of_its_commands() -> None:
    for table in (NEEDS, RULES_OUT):
        for command, rows in table.items():
            known = {p.name for p in COMMANDS[command].params}
            assert known >= set(rows).union(*rows.values()), command


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        ("compile plain.hlo -o made --mpi", "--mpi has no effect without --link", "omit --mpi, or give --link"),
        ("compile plain.hlo -o made --blas cblas", "--blas has no effect without --link", "give --link"),
        ("compile plain.hlo -o made --library -lm", "--library has no effect without --link", "give --link"),
        ("demo --overwrite", "--overwrite has no effect without --write", "give --write"),
        ("demo --write made --seed 1", "--seed has no effect with --write", "give one of them"),
        ("explain plain.hlo --value x --top 3", "--top has no effect with --value", "give one of them"),
        ("explain plain.hlo --remedies 0 --tries 3", "--tries has no effect with --remedies 0", "omit --tries"),
        ("explain plain.hlo --json --top 3", "--top has no effect with --json", "give one of them"),
        ("opt plain.hlo --list-passes", "FILE has no effect with --list-passes", "give one of them"),
        ("run plain.hlo --inputs in.npz --seed 3", "--seed has no effect with --inputs", "give one of them"),
        (
            "sweep plain.hlo --machine h100-dgx --devices 4 --server http://127.0.0.1:9 -j 2",
            "--jobs has no effect with --server",
            "give one of them",
        ),
        ("simulate mlp.hlo --machine h100-dgx --map=", "--map is empty", "omit --map"),
        ("simulate mlp.hlo --machine h100-dgx --map ,", "the mapping ',' names no axis", "give an order"),
        ("simulate mlp.hlo --machine h100-dgx --map axis_0=nvlink+nvlink", "names nvlink twice", "once for each axis"),
        ("partition mlp.hlo -o - --report -", "--output and --report both go to standard output", "name two files"),
    ],
)
def test_what_has_no_effect_is_refused(words: str, what: str, fix: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert what in err
    assert fix in err.partition("fix: ")[2]


def test_measured_times_of_a_program_without_collectives(capfd: pytest.CaptureFixture[str]) -> None:
    write_measured(Path("times.json"), "somebody", "else", {"a": 1.0})
    assert main(["run", "plain.hlo", "--profile-in", "times.json"]) == 2
    assert "no collectives to schedule: --profile-in has no effect" in capfd.readouterr().err
    assert main(["run", "mlp.hlo", "--profile-in", "times.json", "-q"]) == 0


def test_a_scheduled_program_takes_no_plan(capfd: pytest.CaptureFixture[str]) -> None:
    Path("done.hlo").write_text(PLAIN.replace("HloModule plain", "HloModule plain, is_scheduled=true"))
    assert main(["simulate", "done.hlo", "--machine", "h100-dgx", "--plan", "global"]) == 2
    assert "--plan has no effect" in capfd.readouterr().err


def test_the_demo_in_a_job(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "0")
    assert main(["demo"]) == 2
    assert "fix: start it without mpiexec" in capfd.readouterr().err
