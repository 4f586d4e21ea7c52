"""Environment variables are checked like options: what they take, what they refuse, and that all of them are known."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cli.app import main
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.variables import OF_OTHERS, VARIABLES, read_variable, warn_of_unknown
from shardc.launcher.jobs.job_config import job_config

ROOT = Path(__file__).parents[2]
#: What the C library of `shardc compile` calls its own constants.
_IN_C = "compiler/ahead"
GOOD = {
    "SHARDC_DUMP_TO": ["dumps", "."],
    "SHARDC_REPORT_TO": ["reports", "."],
    "SHARDC_DUMP_PASSES": ["fuse|lower", ".*"],
    "SHARDC_CACHE_DIR": ["cache"],
    "SHARDC_CACHE_SIZE": ["0", "1.5", "1e3"],
    "SHARDC_TIMEOUT": ["0", "0.5", "60", "1e2"],
    "SHARDC_NUM_THREADS": ["0", "1", "64"],
    "SHARDC_NUM_DEVICES": ["1", "8", "512"],
    "SHARDC_TUNE": ["0", "2.5"],
    "SHARDC_OVERLAP": ["never", "auto", "always"],
    "SHARDC_OVERLAP_MEMORY": ["1", "1.1", "4"],
    "SHARDC_MACHINE": ["h100-dgx:4"],
    "SHARDC_PROFILE": [__file__],
    "SHARDC_SERVER": ["http://localhost:8377"],
    "SHARDC_TOKEN": ["secret"],
    "SHARDC_TOKEN_FILE": [__file__],
    "SHARDC_SERVER_KEY": ["0F" * 32],
    "SHARDC_BIND": ["auto", "none", "core", "numa"],
    "SHARDC_RANKS": ["1", "4"],
    "SHARDC_CRASH_REPORT": ["name"],
    "SHARDC_RANK_PROCESS": ["4711:12"],
}
SWITCHES = ["SHARDC_CHECK", "SHARDC_SHARED_MEMORY", "SHARDC_TRANSFER_THREAD", "SHARDC_TF32", "SHARDC_DETERMINISTIC"]
BAD = {
    "SHARDC_DUMP_TO": [__file__, f"{__file__}/sub", f"{__file__}/sub/sub"],
    "SHARDC_REPORT_TO": [__file__],
    "SHARDC_DUMP_PASSES": ["(", "a**"],
    "SHARDC_CACHE_DIR": [],
    "SHARDC_RANK_PROCESS": [],
    **{
        name: ["nan", "inf", "-inf", "-1", "1e999", "soon", " 5", "1_0", "0x10", "١", "1,5", "--1", "1e"]
        for name in ("SHARDC_CACHE_SIZE", "SHARDC_TIMEOUT", "SHARDC_TUNE", "SHARDC_OVERLAP_MEMORY")
    },
    "SHARDC_NUM_THREADS": ["2.5", "nan", "-1", "1e3", "many", "99999", "1" * 5000, "٣"],
    "SHARDC_NUM_DEVICES": ["0", "2.5", "-1", "many", "99999"],
    "SHARDC_RANKS": ["0", "2.5", "nan", "-1", "x"],
    "SHARDC_OVERLAP": ["Auto", "yes", "1", "never "],
    "SHARDC_BIND": ["cores", "1"],
    **{name: ["2", "maybe", "nan", " 1", "-1", "enable", "0.0"] for name in SWITCHES},
    "SHARDC_PROFILE": ["no/such/file", "."],
    "SHARDC_TOKEN_FILE": ["no/such/file", "."],
    "SHARDC_SERVER_KEY": ["0f", "g" * 64, "no/such/file", __file__],
    **{
        name: ["a\nb", " a", "\x1b[0m"]
        for name in ("SHARDC_MACHINE", "SHARDC_SERVER", "SHARDC_TOKEN", "SHARDC_CRASH_REPORT")
    },
}


def test_all_variables_are_in_the_table_and_in_the_tests() -> None:
    used = set()
    for folder in (
        "native",
        "hlo",
        "sharding",
        "costs",
        "collectives",
        "partitioner",
        "compiler",
        "launcher",
        "frontends",
        "analysis",
        "service",
        "shardc/cli",
        "shardc/stages",
    ):
        for file in (ROOT / folder).rglob("*.py"):
            if _IN_C not in file.as_posix():
                used |= set(re.findall(r"\bSHARDC_[A-Z0-9_]+\b", file.read_text()))
    assert used - {"SHARDC_MPI"} - OF_OTHERS == set(VARIABLES) == GOOD.keys() | set(SWITCHES) == set(BAD)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_taken(name: str) -> None:
    for text in GOOD[name]:
        assert read_variable(name, {name: text}) is not None
        Config.from_environment({name: text})
    assert read_variable(name, {name: ""}) is read_variable(name, {}) is None
    assert Config.from_environment({name: ""}) == Config()


@pytest.mark.parametrize("name", SWITCHES)
def test_switches(name: str) -> None:
    field = name.removeprefix("SHARDC_").lower()
    for words, wanted in ((("1", "on", "TRUE", "yes"), True), (("0", "off", "False", "no"), False)):
        for word in words:
            assert getattr(Config.from_environment({name: word}), field) is wanted


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    for text in BAD[name]:
        with pytest.raises(InputError) as caught:
            Config.from_environment({name: text})
        shown = name if name == "SHARDC_TOKEN" else f"{name}={text!r}"  # a secret is not printed
        assert caught.value.what.startswith(f"{shown} is not {VARIABLES[name].takes}")
        assert name in str(caught.value.where)


@pytest.mark.parametrize(
    "name", [n for n in VARIABLES if VARIABLES[n].takes.startswith(("a number", "a whole", "one of"))]
)
@given(text=st.one_of(st.text(max_size=8), st.floats().map(str), st.integers().map(str)))
@settings(max_examples=60, deadline=None)
def test_drawn_words_are_values_in_range_or_refused(name: str, text: str) -> None:
    try:
        value = read_variable(name, {name: text})
    except InputError as e:
        assert name in e.what
        assert repr(text) in e.what
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        assert 0 <= value <= 2e9
        assert value == float(text)


@pytest.mark.parametrize("name", [n for n in BAD if BAD[n]])
def test_commands_end_with_the_variable_and_the_value(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name in ("SHARDC_BIND", "SHARDC_CRASH_REPORT"):
        monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv(name, BAD[name][0])
    assert main(["run", str(ROOT / "examples/hlo_annotated/mlp.hlo")]) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"error: {name}")
    assert "Traceback" not in err


def test_ranks_say_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("SHARDC_TIMEOUT", "nan")
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, "-c"]
    done = subprocess.run(
        [*line, "import shardc; shardc.process_index()"],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("SHARDC_TIMEOUT='nan' is not a number") == 1, done.stderr


def test_misspelt_variables_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith("SHARDC_"):
            monkeypatch.delenv(name)
    for name in ("SHARDC_TIMEOUTS", "SHARDC_NUM_DEVICE", "SHARDC_ZZZ", "SHARDC_DUMP_PASSES", *OF_OTHERS):
        monkeypatch.setenv(name, "5")
    warn_of_unknown.cache_clear()
    assert main(["opt", "--list-passes"]) == 0
    job_config()
    assert [r.getMessage().removeprefix("the environment variable ") for r in caplog.records] == [
        "SHARDC_NUM_DEVICE is unknown to shardc, and ignored: did you mean SHARDC_NUM_DEVICES?",
        "SHARDC_TIMEOUTS is unknown to shardc, and ignored: did you mean SHARDC_TIMEOUT?",
        "SHARDC_ZZZ is unknown to shardc, and ignored: the page Environment variables lists those that are read",
        "SHARDC_DUMP_PASSES writes nothing without SHARDC_DUMP_TO: set that to a folder",
    ]
    caplog.clear()
    monkeypatch.setenv("SHARDC_RANKS", "2")  # the launcher has told it
    warn_of_unknown.cache_clear()
    job_config()
    assert not caplog.records
    warn_of_unknown.cache_clear()


def test_variables_of_others_are_those_of_the_page() -> None:
    page = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(SHARDC_[A-Z0-9_]+)`", page)) == VARIABLES.keys() | OF_OTHERS - {"SHARDC_SRUN_MPI"}
