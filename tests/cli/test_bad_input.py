"""Bad input of every kind: exit code 2, one error of our own with place and remedy, no output file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc.cli.app import main
from shardc.hlo.errors import InputError
from tests.cli.programs import MLP, PLAIN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mlp.hlo").write_text(MLP)
    (tmp_path / "plain.hlo").write_text(PLAIN)
    (tmp_path / "unknown.hlo").write_text(PLAIN.replace("exponential(x)", "frobnicate(x)"))
    (tmp_path / "cut.hlo").write_text(MLP[: len(MLP) // 2])
    (tmp_path / "shapes.hlo").write_text(MLP.replace("y = f32[8,10]", "y = f32[8,11]"))
    (tmp_path / "empty.hlo").write_text("\n")
    (tmp_path / "binary.hlo").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "latin.hlo").write_bytes(MLP.replace("mlp", "ml\xe4").encode("latin-1"))
    (tmp_path / "broken.mlir").write_text("module @m { func.func @main( {")
    (tmp_path / "prose.txt").write_text("Dear compiler, please multiply these matrices.\n")
    (tmp_path / "train.py").write_text('"""One training step."""\n\nimport jax\n')
    (tmp_path / "broken.toml").write_text("[mesh\n")
    np.savez(tmp_path / "short.npz", in0=np.zeros((8, 6), np.float32))
    np.savez(tmp_path / "shape.npz", in0=np.zeros((8, 6), np.float32), in1=np.zeros((6, 9), np.float32))
    np.savez(tmp_path / "dtype.npz", in0=np.zeros((8, 6)), in1=np.zeros((6, 10)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILES = [
    ("nothing.hlo", "there is no file nothing.hlo"),
    (".", "cannot be read"),
    ("empty.hlo", "the file is empty"),
    ("binary.hlo", "has no known binary format"),
    ("unknown.hlo", "frobnicate"),
    ("cut.hlo", "cut.hlo:"),
    ("shapes.hlo", "%y"),
    ("latin.hlo", "not UTF-8"),
    ("broken.mlir", "broken.mlir"),
    ("prose.txt", "prose.txt:1"),
    ("train.py", "fix: write the program in Python with shardc.save(f"),
    ("mpl.hlo", "fix: did you mean mlp.hlo"),
    ("absent/mlp.hlo", "fix: name a file in an existing folder"),
]

OPTIONS = [
    (["--mesh", "data"], "'data' is not an axis and its size"),
    (["--mesh", "data=0"], "'data=0' is not an axis and its size"),
    (["--mesh", "a=2,a=2"], "axis 'a' is given twice"),
    (["--mesh", "a=3"], "which cannot be resized to the mesh a=3"),
    (["--annotate", "x"], "'x' is not NAME=SPEC"),
    (["--annotate", "xx=None"], "xx"),
    (["--annotate", "x=P(None, ('a', 'b'))"], "as text write None,a+b; in Python"),
    (["--annotate", "x=PartitionSpec('a')"], "as text write a; in Python"),
    (["--annotate", "x=modle,None"], "modle"),
    (["--annotate", "x=None,None,None"], "x"),
    (["--annotate", "x=axis_0,axis_0"], "axis_0"),
    (["--annotate", "x=None", "--annotate", "x=axis_0"], "'x' is annotated twice"),
    (["--annotations", "nothing.toml"], "nothing.toml"),
    (["--annotations", "broken.toml"], "broken.toml"),
    (["--frobnicate"], "No such option"),
]

RUN = [
    (["--inputs", "nothing.npz"], "there is no file"),
    (["--inputs", "prose.txt"], "prose.txt is not an .npz file"),
    (["--inputs", "short.npz"], "short.npz lacks in1 (w)"),
    (["--inputs", "shape.npz"], "the file holds shape [6, 9], but the parameter has [6, 10]"),
    (["--inputs", "dtype.npz"], "the file holds float64, but the parameter is f32"),
    (["--outputs", "no/o.npz"], "for o.npz does not exist"),
    (["--outputs", "."], "is a folder"),
    (["--device", "tpu"], "unknown compile target 'tpu'"),
    (["--device", "cuda:sm_35"], "unknown compile target 'cuda:sm_35'"),
    (
        ["--ranks", "2", "--devices-per-rank", "1"],
        "the mesh has 4 devices, but the job has only 2 ranks x 1 device per rank",
    ),
    (["--devices-per-rank", "3"], "the mesh has 4 devices, but the job has only 1 rank x 3 devices per rank"),
    (["--ranks", "5"], "the program runs on 4 devices, but --ranks is 5"),
    (["--ranks", "8"], "such as --mesh axis_0=4, or use"),
    (["--ranks", "-1"], "at least 1"),
    (["--ranks", "two"], "--ranks"),
    (["--seed", "x"], "--seed"),
]


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert captured.err.startswith("error: "), captured.err
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(("file", "message"), FILES)
@pytest.mark.parametrize("command", ["propagate", "partition", "run"])
def test_files(folder: Path, command: str, file: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--outputs", "o.npz"] if command == "run" else ["-o", "o.hlo"]
    fails(capsys, [command, file, *output], message, folder)


@pytest.mark.parametrize(("options", "message"), OPTIONS)
@pytest.mark.parametrize("command", ["partition", "explain"])
def test_options(
    folder: Path, command: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(capsys, [command, "mlp.hlo", *options], message, folder)


@pytest.mark.parametrize(("options", "message"), RUN)
def test_run(folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = [] if "--outputs" in options else ["--outputs", "o.npz"]
    fails(capsys, ["run", "mlp.hlo", *output, *options], message, folder)


def test_a_name_that_annotations_do_not_fit_names_their_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "names.toml").write_text('[mesh]\nd = 2\n[annotate]\nnobody = "d,None"\n')
    for command in ("explain", "partition"):
        more = ["-o", str(folder / "o.hlo")] if command == "partition" else []
        assert main([command, str(folder / "plain.hlo"), "--annotations", str(folder / "names.toml"), *more]) == 2
        error = capsys.readouterr().err
        assert "no argument, result or value is named 'nobody'\n  where: " in error and "names.toml" in error


def test_annotations_without_a_mesh(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, ["partition", "plain.hlo", "--annotate", "x=data"], "mesh", folder)


@pytest.mark.parametrize(
    ("name", "value"), [("SHARDC_TIMEOUT", "soon"), ("SHARDC_NUM_THREADS", "-1"), ("SHARDC_DUMP_PASSES", "(")]
)
def test_environment(
    folder: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    fails(capsys, ["run", "mlp.hlo"], name, folder)


def test_missing_mpi(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/none/libmpi.so")
    said = "MPI4PY_LIBMPI=/none/libmpi.so leads to no MPI library"
    fails(capsys, ["run", "mlp.hlo", "--ranks", "4", "--outputs", "o.npz"], said, folder)
    fails(capsys, ["mpiexec", "-n", "2", "true"], said, folder)
    monkeypatch.delenv("MPI4PY_LIBMPI")
    monkeypatch.setattr("shardc.launcher.jobs.mpi_environment._candidates", lambda environ: iter(()))
    fails(capsys, ["mpiexec", "-n", "2", "true"], "pip install 'shardc[mpich]'", folder)


@pytest.mark.mpi
def test_a_launcher_of_another_mpi(folder: Path) -> None:
    environ = {**os.environ, "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "shardc", "run", "mlp.hlo", "--outputs", "o.npz"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "[2] error: the job was started by Open MPI's mpirun (OMPI_COMM_WORLD_SIZE=4)" in done.stderr
    assert "but the MPI library is MPICH" in done.stderr
    assert not (folder / "o.npz").exists()


@pytest.mark.mpi
def test_a_world_of_another_size(folder: Path) -> None:
    environ = {**os.environ, "PMI_SIZE": "4", "PMI_RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "shardc", "run", "mlp.hlo", "--outputs", "o.npz"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert not (folder / "o.npz").exists()


def test_damaged_programs_never_end_in_a_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes changed, dropped and doubled at random."""
    rng = random.Random(0)
    for _ in range(150):
        text = bytearray((MLP if rng.random() < 0.5 else PLAIN).encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            change = rng.randrange(4)
            if change == 0:
                text[at] = rng.choice(b"(){}[]<>=,%0123456789abcf \n")
            elif change == 1:
                del text[at : at + rng.randint(1, 12)]
            elif change == 2:
                text[at:at] = text[at : at + rng.randint(1, 30)]
            else:
                text[at:at] = rng.choice([b"-", b"0", b"99999999999", b"\xff", b"ROOT ", b"{", b"f32[2]"])
        (folder / "damaged.hlo").write_bytes(bytes(text))
        code = main(["partition", "damaged.hlo"])
        captured = capsys.readouterr()
        assert code in (0, 2), (bytes(text), captured.err)
        assert "Traceback" not in captured.err, bytes(text)


USAGE = [
    (["explain", "--diff", "mlp.hlo"], "fix: see shardc explain --help"),
    (["simulate", "mlp.hlo"], "fix: add --machine h100-dgx"),
    (["visualize", "mlp.hlo"], "fix: add --value NAME"),
    (["report", "mlp.hlo"], "fix: add -o NAME"),
    (["check", "mlp.hlo"], "fix: add --budget FILE"),
    (["simulate", "mlp.hlo", "--machine", "h100"], "fix: did you mean h100-dgx?"),
    (
        ["simulate", "mlp.hlo", "--machine", "h100-dgx:abc"],
        "'abc' is not a number of devices",
    ),
    (["sweep", "mlp.hlo", "--machine", "h100-dgx", "--devices", "16..8"], "the range 16..8 is empty"),
    (["explain", "mlp.hlo", "--threshold", "wire=7"], "the threshold wire is 7"),
    (["explain", "mlp.hlo", "--threshold", "speed=1"], "unknown threshold 'speed'"),
    (["explain", "mlp.hlo", "--picture", "plan.png", "--plan", "global"], "fix: name plan.svg"),
    (["partition", "mlp.hlo", "--overlap", "sometimes"], "No such option"),
    (["run", "mlp.hlo", "--overlap", "sometimes"], "unknown value 'sometimes'\n  where: option overlap"),
    (["run", "mlp.hlo", "--prefix"], "--prefix belongs to a job, but no --ranks is given"),
    (["run", "mlp.hlo", "--ranks", "-1"], "--ranks -1 is negative\n  fix: give at least 1"),
    (["run", "mlp.hlo", "--ranks", "two"], "error: --ranks takes a whole number\n  fix: see shardc run --help"),
    (["explain", "mlp.hlo", "--seconds", "x"], "error: --seconds takes a number\n"),
    (["explain", "mlp.hlo", "--remedies", "-1"], "error: --remedies takes a number of at least 0\n"),
    (["mpiexec", "-n", "four", "true"], "error: -n / -np / --ranks takes a whole number\n"),
    (["partition", "mlp.hlo", "-o", "out.hlo", "--report", "out.hlo"], "--output and --report are both out.hlo"),
    (["simulate", "mlp.hlo", "--machine", "mine.toml"], "no machine 'mine.toml': there is no such file"),
    (["mpiexec", "-n", "2", "--prefx", "python", "train.py"], "no option --prefx\n  fix: did you mean --prefix?"),
    (["mpiexec", "--devices-per-rank", "2", "python", "train.py"], "fix: its options are --ranks, --hosts"),
    (["explain", "mlp.hlo", "--annotate", "x={devices=[2,1]<=[2]}"], "'{devices=[2,1]<=[2]}' is a tile assignment"),
    (["mpiexec", "-n", "2", "python", "trian.py"], "there is no file trian.py\n  fix: did you mean train.py?"),
]


@pytest.mark.parametrize(("command", "text"), USAGE, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_usage_errors_have_a_way_out(
    command: list[str], text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    told = capsys.readouterr().err
    assert text in told
    assert told.count("error: ") == 1


def test_a_new_axis_that_nothing_uses_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["demo", "--write", "."]) == 0
    assert main(["partition", "step.mlir", "--mesh", "dta=4", "-o", "out.hlo"]) == 0
    said = "the mesh axis dta is new to the program, and no annotation uses it: did you mean data?"
    assert [r.getMessage() for r in caplog.records] == [said]
    assert f"warning: {said}\n" in capsys.readouterr().err
    caplog.clear()
    used = ["partition", "step.mlir", "--mesh", "data=2,model=2,pipe=2", "--annotate", "x=data+pipe"]
    assert main([*used, "-o", "out.hlo"]) == 0
    assert main(["partition", "step.mlir", "--mesh", "data=4", "-o", "out.hlo"]) == 0
    assert caplog.records == []


def test_a_changed_guide_file_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--write", "guide"]) == 0
    script = folder / "guide" / "step.py"
    script.write_text(mine := script.read_text() + "# mine\n")
    (folder / "guide" / "step.mlir").unlink()
    assert main(["demo", "--write", "guide"]) == 2
    assert "error: guide/step.py would be overwritten" in capsys.readouterr().err
    assert (script.read_text(), (folder / "guide" / "step.mlir").exists()) == (mine, False)
    assert main(["demo", "--write", "guide", "--overwrite"]) == 0
    assert main(["demo", "--write", "guide"]) == 0
    assert "# mine" not in script.read_text()


@pytest.mark.parametrize("text", ["HloModule x", "module {\n}\n"])
def test_a_text_is_no_path(text: str) -> None:
    with pytest.raises(InputError, match=r"^a program's text was given[^H]*write it to a file"):
        shardc.load(text)
