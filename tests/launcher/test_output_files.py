"""Output files: regular ones whole or not at all with their mode, links followed, devices written to, ``-``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.cli.app import main
from shardc.hlo.errors import InputError
from shardc.hlo.files import replacing
from shardc.launcher.run.output_files import atomic_output, check_outputs, check_writable, write_text

ROOT = Path(__file__).parents[2]
STEP = ROOT / "examples/hlo_annotated/mlp.hlo"
FORMS: dict[str, Callable[[Path], Any]] = {
    "replacing": lambda p: _fill(replacing(p)),
    "atomic_output": lambda p: _fill(atomic_output(p)),
    "partition -o": lambda p: main(["partition", str(STEP), "-o", str(p), "-q"]),
    "partition --report": lambda p: main(["partition", str(STEP), "--report", str(p), "-q"]),
    "propagate -o": lambda p: main(["propagate", str(STEP), "-o", str(p), "-q"]),
    "propagate --provenance": lambda p: main(["propagate", str(STEP), "--provenance", str(p), "-q"]),
    "run --outputs": lambda p: main(["run", str(STEP), "--outputs", str(p), "-q"]),
}


def _fill(opened: Any) -> None:
    with opened as file:
        file.write(b"new")


@pytest.mark.parametrize("form", FORMS)
def test_links_stay_and_modes_are_kept(form: str, tmp_path: Path) -> None:
    target, link, chain = tmp_path / "real" / "out", tmp_path / "link", tmp_path / "chain"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("real/out")
    chain.symlink_to(link)
    FORMS[form](chain)
    assert link.is_symlink()
    assert chain.is_symlink()
    assert target.read_bytes() != b"old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(p.name for p in target.parent.iterdir()) == ["out"]
    target.unlink()
    FORMS[form](chain)  # a link to nothing yet
    assert target.is_file()


@pytest.mark.parametrize("form", FORMS)
def test_fifos_and_devices_are_written_to(form: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    FORMS[form](fifo)
    reader.join(20)
    assert got[0]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    before = Path("/dev/null").stat()
    FORMS[form](Path("/dev/null"))
    after = Path("/dev/null").stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)


def test_what_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    target, link = tmp_path / "out", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    for path in (target, link, Path("-"), Path("/dev/null")):
        with pytest.raises(ZeroDivisionError), atomic_output(path) as file:
            file.write(b"half")
            raise ZeroDivisionError
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(InputError, match="No space left"):
        write_text(Path("/dev/full"), "x")
    circle = tmp_path / "circle"
    circle.symlink_to("circle")
    for path in (circle, tmp_path, tmp_path / "none" / "out"):
        with pytest.raises(InputError):
            check_writable(path)
    assert circle.is_symlink()


def _shell(line: str) -> subprocess.CompletedProcess[bytes]:
    words = f'set -e; shardc() {{ {sys.executable} -m shardc "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", words], capture_output=True, timeout=100, cwd=ROOT, check=True)


def test_standard_output(tmp_path: Path) -> None:
    """``-`` and the names of open files: the file's bytes alone on stdout, the rest on stderr; a redirection holds."""
    plain = _shell(f"shardc partition {STEP}").stdout
    done = _shell(f"shardc partition {STEP} -o -")
    assert done.stdout == plain
    assert b"2 collectives" in done.stderr
    _shell(f"(echo first; shardc partition {STEP} -o /dev/stdout) > {tmp_path / 'both'}")
    assert (tmp_path / "both").read_bytes().startswith(b"first\n" + plain + b"2 collectives")
    _shell(f"shardc run {STEP} --outputs - > {tmp_path / 'out.npz'}")
    with np.load(tmp_path / "out.npz") as file:
        assert "out0" in file


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    check_outputs(output=tmp_path / "a", report=tmp_path / "b", trace=None)
    with pytest.raises(InputError, match="--output and --report both go to standard output"):
        check_outputs(output=Path("-"), report=Path("-"))
    with pytest.raises(InputError, match="--output and --report are both"):
        check_outputs(output=tmp_path / "a", report=tmp_path / "link")


def test_pictures_have_the_suffix_of_what_they_hold(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.SVG", ".svg")
    check_writable(tmp_path / "a", ".svg")
    with pytest.raises(InputError, match=r"a.png needs the ending .svg") as caught:
        check_writable(tmp_path / "a.png", ".svg")
    assert str(caught.value.fix) == f"name {tmp_path / 'a.svg'}"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, links to it, and a Python file of the user."""
    (tmp_path / "step.hlo").write_bytes(STEP.read_bytes())
    (tmp_path / "link.hlo").symlink_to("step.hlo")
    (tmp_path / "step.py").write_text("import jax\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PROGRAM_OUTPUTS = [
    ["propagate", "step.hlo", "-o"],
    ["propagate", "step.hlo", "--provenance"],
    ["partition", "step.hlo", "-o"],
    ["partition", "step.hlo", "--report"],
    ["opt", "step.hlo", "--passes=simplify", "-o"],
    ["auto", "step.hlo", "--machine", "h100-dgx", "-o"],
    ["run", "step.hlo", "--outputs"],
    ["bench", "step.hlo", "--profile-out"],
    ["bench", "step.hlo", "--trace"],
    ["simulate", "step.hlo", "--machine", "h100-dgx", "--trace"],
]


@pytest.mark.parametrize("line", PROGRAM_OUTPUTS, ids=" ".join)
def test_inputs_and_python_files_are_not_overwritten(
    line: list[str], sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, message in (
        ("step.hlo", "step.hlo, which the command reads"),
        ("link.hlo", "link.hlo, which the command reads"),
        ("step.py", "would overwrite the Python file"),
    ):
        assert main([*line, name]) == 2
        assert message in capsys.readouterr().err
    assert (sources / "step.hlo").read_bytes() == STEP.read_bytes()
    assert (sources / "step.py").read_text() == "import jax\n"


def test_annotations_are_not_overwritten(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "plan.toml").write_text("[annotate]\n")
    assert main(["partition", "step.hlo", "--annotations", "plan.toml", "-o", "plan.toml"]) == 2
    assert "--output would overwrite plan.toml, which the command reads" in capsys.readouterr().err


def test_python_files_that_are_new_or_allowed(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.py")
    write_text(tmp_path / "new.py", "a = 1\n")
    with pytest.raises(InputError, match="would overwrite the Python file"):
        write_text(tmp_path / "new.py", "b = 1\n")
    write_text(tmp_path / "new.py", "b = 1\n", replaces=lambda text: text == "a = 1\n")
    assert (tmp_path / "new.py").read_text() == "b = 1\n"


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    for path in (tmp_path / "afile" / "x", tmp_path / "afile" / "folder" / "x"):
        with pytest.raises(InputError, match=r"afile is a file, not a folder") as caught:
            check_writable(path)
        assert caught.value.fix == "name a folder, or a file in an existing folder"
    with pytest.raises(InputError, match=r"/proc/x.hlo") as caught:
        write_text(Path("/proc/x.hlo"), "x")
    assert caught.value.fix


@pytest.mark.parametrize(
    "line",
    [
        ["demo", "--write", "/proc/x"],
        ["bench", str(STEP), "--steps", "1", "--profile-out", "/proc/x"],
        ["partition", str(STEP), "-o", "/proc/x.hlo"],
        ["partition", str(STEP), "--report", str(STEP / "x")],
        ["run", str(STEP), "--outputs", "/proc/x.npz"],
        ["propagate", str(STEP), "--provenance", "/proc/x.json"],
    ],
    ids=" ".join,
)
def test_commands_say_where_they_cannot_write(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    error = capsys.readouterr().err
    assert error.count("error: ") == 1 and "\n  fix: " in error and "Traceback" not in error, error
