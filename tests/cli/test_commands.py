"""The commands on good input."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc.cli.app import main
from tests.cli.programs import BF16, MLP, PLAIN

COMMANDS = (
    *("propagate", "partition", "run", "bench", "explain", "visualize"),
    *("verify", "ops", "devices", "mpiexec", "demo", "simulate"),
)


@pytest.fixture
def mlp(tmp_path: Path) -> str:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    return str(path)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    path = tmp_path / "plain.hlo"
    path.write_text(PLAIN)
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_propagate(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["propagate", mlp]) == 0
    text = capsys.readouterr().out
    assert "%y = f32[8,10] dot(%x, %w)" in text
    assert "sharding={devices=[2,2]<=[4]}" in text
    out = tmp_path / "out.hlo"
    assert main(["propagate", mlp, "-o", str(out)]) == 0
    assert out.read_text() == text
    facts = run_json(capsys, "propagate", mlp)
    assert [p["sharding"] for p in facts["parameters"]] == ["[{axis_0}, {}]", "[{}, {axis_1}]"]


def test_partition(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "out.hlo", tmp_path / "report.json"
    assert main(["partition", mlp, "-o", str(out), "--report", str(report)]) == 0
    captured = capsys.readouterr()
    assert "all-reduce" in captured.out
    assert "m.py:8" in captured.out
    assert f"Wrote {out}" in captured.err
    facts = json.loads(report.read_text())
    wanted = {"devices", "mesh", "parameters", "results", "collectives", "wire_bytes", "flops", "peak_bytes", "seconds"}
    assert wanted <= set(facts)
    assert facts["devices"] == 4
    assert [p["local_shape"] for p in facts["parameters"]] == [[4, 6], [6, 5]]
    assert "num_partitions=4" in out.read_text()
    assert run_json(capsys, "partition", mlp)["collectives"] == facts["collectives"]
    assert run_json(capsys, "partition", mlp, "--machine", "h100-dgx")["collectives"]
    assert main(["partition", mlp, "--machine", "abacus"]) == 2
    assert "tpu-v4" in capsys.readouterr().err


def test_run_writes_what_numpy_computes(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((8, 6)).astype(np.float32), rng.standard_normal((6, 10)).astype(np.float32)
    np.savez(tmp_path / "in.npz", in0=x, in1=w)
    outcome = run_json(capsys, "run", mlp, "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["out1"], np.tanh(x @ w), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(file["out0"], np.tanh(x @ w).sum(), rtol=1e-4, atol=1e-5)
        assert file["dtypes"].tolist() == ["f32", "f32"]
        assert outcome["results"][1]["checksum"] == hashlib.sha256(file["out1"].tobytes()).hexdigest()[:16]
    assert (outcome["devices"], outcome["ranks"]) == (4, 1)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_runs_are_reproducible_and_depend_on_the_seed(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run_json(capsys, "run", mlp, "--seed", s)["results"] for s in ("0", "0", "1"))
    assert first == again
    assert first != other


def test_run_prints_a_table(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", mlp]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mlp: 4 devices on 1 process"
    assert lines[1].split() == ["result", "name", "dtype", "shape", "checksum"]
    assert lines[3].split()[:3] == ["1", "f32", "[8,"]


def test_mesh_and_annotations_of_the_command_line(
    plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "i.npz", in0=np.ones((7, 5), np.float32), in1=np.arange(7, dtype=np.int32))
    flags = ["--inputs", str(tmp_path / "i.npz"), "--outputs", str(tmp_path / "o.npz")]
    given = ["--mesh", "a=2,b=3", "--annotate", "x=a,b", "--annotate", "n=a+b"]
    outcome = run_json(capsys, "run", plain, *given, *flags)
    assert outcome["devices"] == 6
    with np.load(tmp_path / "o.npz") as file:
        np.testing.assert_allclose(file["out0"], np.full((7, 5), np.e, np.float32), rtol=1e-6)
        assert file["out1"].tolist() == list(range(1, 8))
    (tmp_path / "a.toml").write_text('[mesh]\na = 2\nb = 3\n[annotate]\nx = "a,b"\nn = "a+b"\n')
    same = run_json(capsys, "run", plain, "--annotations", str(tmp_path / "a.toml"), *flags)
    assert same["results"] == outcome["results"]
    report = run_json(capsys, "partition", plain, *given)
    assert [p["local_shape"] for p in report["parameters"]] == [[4, 2], [2]]


def test_bfloat16_travels_as_uint16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.hlo").write_text(BF16)
    value = np.arange(8).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "i.npz", in0=value.view(np.uint16))
    files = ["--inputs", str(tmp_path / "i.npz"), "--outputs", str(tmp_path / "o.npz")]
    run_json(capsys, "run", str(tmp_path / "b.hlo"), *files)
    with np.load(tmp_path / "o.npz") as file:
        assert file["out0"].dtype == np.uint16
        assert file["out0"].view(ml_dtypes.bfloat16).tolist() == (value + value).tolist()


def test_bench(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run_json(capsys, "bench", mlp, "--steps", "3", "--warmup", "1")
    assert outcome["steps"] == 3
    assert outcome["collectives_per_step"] >= 1
    assert 0 < outcome["fastest_step_seconds"] <= outcome["step_seconds"] <= outcome["slowest_step_seconds"]
    assert {"read", "propagate", "partition", "compile"} <= set(outcome["seconds"])
    found = outcome["communication"]
    assert found["exposed_seconds"] > 0 and found["hidden_seconds"] == 0
    assert sum(c["times"] for c in found["collectives"]) == outcome["collectives_per_step"]
    assert main(["bench", mlp, "--steps", "2"]) == 0
    out = capsys.readouterr().out
    assert "step: median" in out and "exposed" in out


def test_measured_times_come_back(mlp: str, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    outcome = run_json(capsys, "bench", mlp, "--steps", "2", "--profile-out", str(path))
    ((key, program),) = json.loads(path.read_text())["programs"].items()
    kernels = {k["name"] for k in outcome["profile"]["kernels"] if k["kind"] in ("kernel", "collective")}
    assert len(key) == 32 and kernels == set(program["seconds"]) and min(program["seconds"].values()) > 0
    plain_sums = [r["checksum"] for r in run_json(capsys, "run", mlp)["results"]]
    with_times = run_json(capsys, "run", mlp, "--overlap", "always", "--profile-in", str(path))
    assert [r["checksum"] for r in with_times["results"]] == plain_sums
    assert main(["run", mlp, "--profile-in", str(tmp_path / "none.json")]) == 2
    assert main(["run", mlp, "--overlap", "perhaps"]) == 2
    path.write_text("{}")
    assert main(["run", mlp, "--profile-in", str(path)]) == 2


def test_tuning(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = run_json(capsys, "run", plain, "--tune", "0.5")
    untuned = run_json(capsys, "run", plain)
    assert "tuning" not in untuned
    assert [r["checksum"] for r in tuned["results"]] == [r["checksum"] for r in untuned["results"]]
    assert main(["bench", plain, "--tune", "0.5", "--steps", "2"]) == 0
    assert main(["run", plain, "--tune", "-1"]) == 2


def test_bench_profile(mlp: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = ["--trace", str(tmp_path / "t.json"), "--memory-svg", str(tmp_path / "m.svg")]
    outcome = run_json(capsys, "bench", mlp, "--steps", "2", "--warmup", "0", *files)
    assert {"kernel", "collective"} <= {k["kind"] for k in outcome["profile"]["kernels"]}
    assert outcome["profile"]["roofline"]["bytes_per_second"] > 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "m.svg").read_text().startswith("<svg")
    assert main(["bench", mlp, "--steps", "2", "--profile"]) == 0
    assert "% of roofline" in capsys.readouterr().out
    assert main(["bench", mlp, "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2


def test_explain(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", mlp]) == 0
    text = capsys.readouterr().out
    assert "all-reduce" in text
    assert "at m.py:8" in text
    assert "because" in text
    assert main(["explain", mlp, "--value", "y"]) == 0
    text = capsys.readouterr().out
    assert "%y" in text
    assert "by annotation" in text


def test_provenance_file(mlp: str, tmp_path: Path) -> None:
    out = tmp_path / "why.json"
    assert main(["propagate", mlp, "-q", "-o", str(tmp_path / "o.hlo"), "--provenance", str(out)]) == 0
    data = json.loads(out.read_text())
    axes = [axis for v in data["values"] for d in v["dimensions"] for axis in d["axes"]]
    assert axes
    assert all(axis["annotation"] for axis in axes)
    assert {axis["step"] for axis in axes} <= {0, *(s["step"] for s in data["steps"])}


def test_verify(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = run_json(capsys, "verify", mlp, "--trials", "2")
    assert facts["agrees"] is True
    assert len(facts["results"]) == 4


def test_verify_names_what_differs(
    mlp: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import shardc.analysis.verify as module

    monkeypatch.setattr(module, "gather", lambda array: np.asarray(shardc.gather(array)) + 1)
    assert main(["verify", mlp]) == 1
    text = capsys.readouterr().out
    assert "trial 0, result 0" in text
    assert "] is " in text
    assert "2 DIFFER" in text


def test_ops_has_a_row_for_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    from shardc.hlo.ir.opset import OPS

    rows = run_json(capsys, "ops")
    assert [r["opcode"] for r in rows] == list(OPS)
    assert all(all(r.values()) for r in rows)
    by_name = {r["opcode"]: r for r in rows}
    assert by_name["dot"]["cpu"] == "kernel"
    assert by_name["infeed"]["cpu"].startswith("- ")
    assert main(["ops", "--family", "window"]) == 0
    assert "convolution" in capsys.readouterr().out


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    facts = run_json(capsys, "devices")
    assert facts["cores"] >= 1
    assert facts["this job"] == "one process with virtual devices"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shardc {shardc.__version__}\n"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "propagate" in shown.out + shown.err and "error" not in shown.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Example:" in capsys.readouterr().out


def test_quiet_says_nothing(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["propagate", mlp, "-q", "-o", str(tmp_path / "o.hlo")]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_common_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--json", "--verbose", "--quiet"))


def test_explain_data_remedies_and_seconds(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = run_json(capsys, "explain", mlp, "--machine", "h100-dgx", "--remedies", "1", "--tries", "2")
    assert told["version"] == 1 and told["totals"]["seconds"] > 0
    assert told["collectives"][0]["tried"] == 2
    assert told["collectives"][0]["names"] and told["collectives"][0]["seconds"] > 0
    assert run_json(capsys, "explain", mlp, "--remedies", "0")["collectives"][0]["tried"] == 0
    assert main(["explain", mlp, "--top", "-1"]) == 2
    assert "--top takes a number of at least 0" in capsys.readouterr().err
    assert main(["explain", mlp, "--threshold", "padding"]) == 2
    assert main(["explain", mlp, "--threshold", "speed=1"]) == 2
    assert "use one of memory, wire, padding, work" in capsys.readouterr().err


def test_explain_draws_a_plan(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    assert main(["explain", mlp, "--picture", str(picture)]) == 2
    assert "--plan global" in capsys.readouterr().err and not picture.exists()
    for wrong in (["--plan", "best"], ["--memory", "much"], ["--plan", "global", "--memory", "much"]):
        assert main(["explain", mlp, *wrong]) == 2, wrong
        assert capsys.readouterr().err.startswith("error: "), wrong


@pytest.mark.parametrize("command", ["partition", "run", "bench --steps 1 --warmup 0", "simulate --machine h100-dgx"])
def test_commands_take_plans(mlp: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, *more = command.split()
    for word in ("auto", "global"):
        assert main([first, mlp, *more, "--plan", word, "--memory", "1GiB"]) == 0, word
    capsys.readouterr()
    assert main([first, mlp, *more, "--plan", "best"]) == 2
    assert "use one of propagated, auto, global" in capsys.readouterr().err
    assert main([first, mlp, *more, "--memory", "1GiB"]) == 0


def test_compile_takes_a_plan(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", mlp, "-o", str(tmp_path / "step"), "--plan", "auto"]) == 0
    assert main(["compile", mlp, "-o", str(tmp_path / "step"), "--plan", "best"]) == 2
    assert "unknown value 'best'" in capsys.readouterr().err


def test_explain_compares_annotations(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[annotate]\nx = "None,None"\n')
    there = run_json(capsys, "explain", mlp, "--diff", "-", str(other))
    back = run_json(capsys, "explain", mlp, "--diff", str(other), "-")
    assert there["before"] == back["after"] and there["after"] == back["before"]
    assert {"value": "x", "before": there["shardings"][0]["before"], "after": "[{}, {}]"} in there["shardings"]
    assert main(["explain", mlp, "--diff", "-", str(other)]) == 0
    assert "shardings that differ" in capsys.readouterr().out
    assert main(["explain", mlp, "--diff", "-", str(tmp_path / "none.toml")]) == 2
    capsys.readouterr()
    other.write_text('[annotate]\nnobody = "x"\n')
    assert main(["explain", mlp, "--diff", "-", str(other)]) == 2
    assert f"where: {other}" in capsys.readouterr().err
