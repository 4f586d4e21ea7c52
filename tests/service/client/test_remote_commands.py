"""Commands at a compile service print and write what they do here, and fail the same way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardc.cli.app import main
from shardc.hlo.errors import InputError
from shardc.launcher.executors.problems import to_problem
from tests.analysis.simulate.test_as_scheduled import GPU
from tests.service.client.remote_service import FakeService, serving

ROOT = Path(__file__).parents[3]
SETS = """
[sets.plain.annotate]
x = "data"
[sets.narrow.annotate]
w1 = "None,model"
[sets.narrow.axes]
model = "1..2"
"""
MESH = ["--mesh", "data=2,model=2"]
MACHINE = ["--machine", "h100-dgx"]
SWEEP = ["--mesh", "data=1,model=1", *MACHINE, "--devices", "4,8", "--refine", "1", "--annotate", "x=data"]


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A program without a mesh."""
    path = tmp_path / "plain.hlo"
    path.write_text(
        "HloModule plain\n\nENTRY %main (x: f32[8,16], w1: f32[16,8]) -> f32[8,8] {\n"
        "  %x = f32[8,16] parameter(0)\n  %w1 = f32[16,8] parameter(1)\n"
        "  ROOT %y = f32[8,8] dot(%x, %w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    return str(path)


def run(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, str, str]:
    code = main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def without_seconds(text: str) -> str:
    """JSON but for what was measured; 2 and 2.0 are not the same."""
    data = json.loads(text)
    if isinstance(data, dict):
        data.pop("seconds", None)
    return json.dumps(data)


@pytest.mark.parametrize(
    "arguments",
    [
        ["partition", *MESH, "--annotate", "x=data"],
        ["partition", *MESH, "--annotate", "w1=model,None", "--json"],
        ["partition", *MESH, "--annotate", "w1=model,None", *MACHINE, "--windowed-einsum", "always", "--json"],
        ["simulate", *MESH, "--annotate", "w1=model", *MACHINE, "--map", "model,data"],
        ["simulate", *MESH, "--annotate", "w1=model", *MACHINE, "--overlap", "always", "--json"],
        ["explain", *MESH, "--annotate", "w1=model", *MACHINE, "--remedies", "1", "-q"],
        ["explain", *MESH, "--annotate", "w1=model", "--remedies", "0", "--threshold", "padding=0.5", "--json"],
        ["explain", "--mesh", "data=2,idle=3", "--remedies", "0", "--json"],
        ["explain", *MESH, "--annotate", "w1=model", "--value", "y", "--value", "x"],
        ["sweep", *SWEEP, "--json"],
        ["sweep", *SWEEP, "--top", "2"],
    ],
    ids=lambda a: "-".join(a[:1] + a[-1:]),
)
def test_same_output(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    command = [arguments[0], plain, *arguments[1:]]
    here, there = run(capsys, command), run(capsys, [*command, "--server", service.url])
    assert here[0] == there[0] == 0, (here, there)
    if "--json" in command:
        assert without_seconds(here[1]) == without_seconds(there[1])
    else:
        assert here[1] == there[1]
    assert there[1].strip()
    assert sum(service.made.values()) == 1  # one order each


def test_files_are_the_same(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sets = tmp_path / "sets.toml"
    sets.write_text(SETS)
    (tmp_path / "a.toml").write_text('[annotate]\nw1 = "None,model"\n')
    for side in ("here", "there"):
        to, more = tmp_path / side, ["--server", service.url] if side == "there" else []
        to.mkdir()
        commands = [
            ["partition", "-o", f"{to}/out.hlo", "--annotate", "x=data"],
            ["simulate", *MACHINE, "--trace", f"{to}/trace.json", "--annotate", "w1=model"],
            ["report", *MACHINE, "-o", f"{to}/report.html", "--annotate", "w1=model", "--remedies", "0"],
            ["compile", "-o", f"{to}/ahead", "--name", "step", "--target-cpu", "x86-64-v3"],
            ["compile", "-o", f"{to}/gpu", "--target", "cuda:sm_90"],
            ["explain", "--diff", "-", str(tmp_path / "a.toml"), "--json"],
        ]
        (to / "said").write_text("")
        for command in commands:
            code, out, err = run(capsys, [command[0], plain, *command[1:], *MESH, *more])
            assert code == 0, (command, err)
            (to / "said").write_text((to / "said").read_text() + out.replace(str(to), "TO"))
        code, out, err = run(capsys, ["sweep", plain, *SWEEP, "--over", f"mesh,{sets}", "--json", *more])
        assert code == 0, err
        (to / "sweep").write_text(out)
    here = {p.relative_to(tmp_path / "here"): p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}
    there = {p.relative_to(tmp_path / "there"): p.read_bytes() for p in (tmp_path / "there").rglob("*") if p.is_file()}
    assert here.keys() == there.keys() and len(here) > 8
    assert (tmp_path / "here" / "said").read_text() == (tmp_path / "there" / "said").read_text()
    assert [name for name in here if here[name] != there[name]] == []


def test_a_program_that_the_service_does_not_take_is_called_by_its_name(
    plain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = to_problem(InputError("the body is too long", where="body", fix="send less"), 413)

    def refuse(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
        return (413, json.dumps(told).encode()) if path == "/v1/programs" else (status, content)

    with serving(spoil=refuse) as service:
        code, _, err = run(capsys, ["partition", plain, "--server", service.url])
    assert code == 2
    assert err.splitlines() == ["error: the body is too long", f"  where: {plain}", "  fix: send less"]


def test_a_file_deep_down_is_called_by_all_of_its_name(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / ("d" * 150) / ("e" * 150)
    folder.mkdir(parents=True)
    (folder / "plain.hlo").write_bytes(Path(plain).read_bytes())
    pages = []
    for more in ([], ["--server", service.url]):
        to = str(tmp_path / "page.html")
        code, _, err = run(capsys, ["report", f"{folder}/plain.hlo", "-o", to, "--remedies", "0", "-q", *more])
        assert code == 0, err
        pages.append(Path(to).read_bytes())
    assert pages[0] == pages[1]
    assert str(folder).encode() in pages[0]


@pytest.mark.parametrize("target", [[], ["--target", "cuda:sm_90"]])
def test_code_that_another_version_makes_is_not_taken(
    plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, target: list[str]
) -> None:
    with serving(version="another") as service:
        command = ["compile", plain, "-o", str(tmp_path / "out"), *target, "--server", service.url]
        code, _, err = run(capsys, command)
    assert code == 2 and "another version" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["partition"], ["sweep", "--devices", "2", "--mesh", "data=2", *MACHINE]])
def test_what_is_no_program_is_called_by_its_name(
    service: FakeService, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\0\0\0")
    command = [arguments[0], str(path), *arguments[1:]]
    here, there = run(capsys, command), run(capsys, [*command, "--server", service.url])
    assert here == there
    assert f"where: {path}" in there[2]
    assert not service.made


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", *MESH, "--machine", ""],
        ["simulate", *MESH, "--machine", "FOLDER/bad.toml:8"],
        ["partition", *MESH, "--machine", "FOLDER/words.toml"],
        ["simulate", *MESH, *MACHINE, "--profile-in", "FOLDER/nothing"],
        ["simulate", *MESH, *MACHINE, "--profile-in", "FOLDER/bad.toml"],
        ["explain", *MESH, "--threshold", "padding=nan", "--remedies", "0"],
        ["explain", *MESH, "--threshold", "padding=-1", "--remedies", "0"],
        ["explain", *MESH, "--threshold", "nobody=1", "--remedies", "0"],
    ],
    ids=lambda a: "-".join(a[:1] + a[-3:]),
)
def test_what_can_be_seen_here_is_told_in_the_words_of_here(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "bad.toml").write_text("x = [")
    (tmp_path / "words.toml").write_text("x = 1")
    command = [arguments[0], plain, *(a.replace("FOLDER", str(tmp_path)) for a in arguments[1:])]
    here, there = run(capsys, command), run(capsys, [*command, "--server", service.url])
    assert here == there
    assert there[0] == 2 and not service.made


def test_settings_that_watch_the_compiler_keep_the_work_here(
    service: FakeService,
    plain: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SHARDC_DUMP_TO", str(tmp_path / "dumps"))
    code, out, err = run(capsys, ["partition", plain, *MESH, "--server", service.url])
    assert (code, out) == (2, "") and "SHARDC_DUMP_TO" in err
    monkeypatch.setenv("SHARDC_SERVER", service.url)
    code, out, err = run(capsys, ["partition", plain, *MESH])
    assert code == 0 and out and err.startswith("warning: ") and "running it here" in err
    assert list((tmp_path / "dumps").iterdir()) and not service.made
    monkeypatch.delenv("SHARDC_DUMP_TO")
    monkeypatch.setenv("SHARDC_TUNE", "1")
    assert run(capsys, ["partition", plain, *MESH])[0] == 0 and service.made == {"PartitionOrder": 1}
    code, out, err = run(capsys, ["compile", plain, "-o", str(tmp_path / "ahead")])
    assert code == 2 and "tuning measures" in err and service.made == {"PartitionOrder": 1}


@pytest.mark.parametrize(
    ("name", "value", "scheme"),
    [
        ("ALL_PROXY", "gopher://127.0.0.1:1", "http"),
        ("HTTP_PROXY", "gopher://127.0.0.1:1", "http"),
        ("SSL_CERT_FILE", "/nowhere/at/all", "https"),
    ],
)
def test_proxies_and_certificates_of_the_environment_that_are_of_no_use(
    plain: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, scheme: str
) -> None:
    monkeypatch.setenv(name, value)
    url = f"{scheme}://shardc.invalid:8377"
    code, out, err = run(capsys, ["partition", plain, "--server", url])
    assert (code, out) == (2, "") and "error: the compile service cannot be reached" in err and name in err
    monkeypatch.setenv("SHARDC_SERVER", url)
    code, out, err = run(capsys, ["partition", plain])
    assert code == 0 and out and "running it here" in err


def test_a_program_that_xla_scheduled(service: FakeService, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "dump.hlo"
    path.write_text(GPU)
    command = ["simulate", str(path), "--machine", "h100-dgx:8"]
    there = [*command, "--server", service.url]
    assert run(capsys, command) == run(capsys, there)
    assert run(capsys, [*command, "--annotate", "x=a", "--mesh", "a=8"])[:2] == (2, "")
    assert run(capsys, [*there, "--annotate", "x=a", "--mesh", "a=8"])[:2] == (2, "")
    assert run(capsys, [*command, "--mesh", "a=2,b=4", "--json"]) == run(
        capsys, [*there, "--mesh", "a=2,b=4", "--json"]
    )


def test_machines_of_files(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The description travels, and is called as it was here."""
    path = tmp_path / "Our machine.toml"
    path.write_text((ROOT / "costs" / "machines" / "h100-dgx.toml").read_text())
    machine = ["--machine", f"{path}:4", "--json"]
    for command in (
        ["partition", plain, *MESH],
        ["simulate", plain, *MESH],
        ["explain", plain, *MESH, "--remedies", "0"],
        ["sweep", plain, "--mesh", "data=1,model=1", "--devices", "4", "--annotate", "x=data"],
    ):
        here, there = run(capsys, [*command, *machine]), run(capsys, [*command, *machine, "--server", service.url])
        assert here[0] == there[0] == 0, there[2]
        assert without_seconds(here[1]) == without_seconds(there[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["partition", "--mesh", "data=2", "--annotate", "nobody=data"],
        ["partition", "--mesh", "data=2", "--annotate", "x=modle"],
        ["simulate", "--mesh", "data=3", "--machine", "nowhere"],
        ["simulate", *MESH, *MACHINE, "--map", "data=tubes"],
        ["explain", "--mesh", "data=2", "--value", "nobody"],
        ["sweep", *MACHINE, "--devices", "4"],
        ["sweep", *MACHINE],
        ["compile", "-o", "out", "--name", "two words"],
        ["compile", "-o", "out", "--target-cpu", "z80"],
    ],
    ids=lambda a: "-".join(a[:1] + a[-1:]),
)
def test_same_errors(
    service: FakeService,
    plain: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [arguments[0], plain, *arguments[1:]]
    here, there = run(capsys, command), run(capsys, [*command, "--server", service.url])
    assert here == there
    assert here[0] == 2


def test_wrong_programs_fail_the_same(service: FakeService, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, text in {"bad.hlo": "HloModule bad\nENTRY e { ROOT p = f32[2] what(0) }\n", "no.hlo": " \n"}.items():
        (tmp_path / name).write_text(text)
        command = ["partition", str(tmp_path / name), "--mesh", "data=2"]
        here, there = run(capsys, command), run(capsys, [*command, "--server", service.url])
        assert here == there
        assert name in here[2]
    command = ["partition", str(tmp_path / "none.hlo")]
    assert run(capsys, command) == run(capsys, [*command, "--server", service.url])


def test_the_environment_names_a_service(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["partition", plain, *MESH, "--annotate", "x=data"]
    here = run(capsys, command)
    monkeypatch.setenv("SHARDC_SERVER", service.url)
    assert run(capsys, [*command, "-v"])[1] == here[1]
    assert service.made == {"PartitionOrder": 1}
    monkeypatch.setenv("SHARDC_SERVER", "http://127.0.0.1:9")  # nobody is there
    code, out, err = run(capsys, command)
    assert (code, out) == here[:2]
    assert err.count("warning") == 1 and "127.0.0.1:9" in err


def test_a_service_asked_for_must_be_there(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, ["partition", plain, *MESH, "--server", "http://127.0.0.1:9"])
    assert (code, out) == (2, "")
    assert "does not answer" in err and "shardc serve" in err


def test_verbose_tells_the_job(service: FakeService, plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["partition", plain, *MESH, "--server", service.url]
    assert "job job0 (PartitionOrder): done" in run(capsys, [*command, "-v"])[2]
    assert ", from the store" in run(capsys, [*command, "-v"])[2]
    assert run(capsys, command)[2] == ""


def test_tuning_is_refused(
    service: FakeService, plain: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, ["compile", plain, "-o", str(tmp_path / "o"), "--tune", "1", "--server", service.url])
    assert code == 2 and "cannot tune" in err
