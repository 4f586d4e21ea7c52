"""`make test-newest`: which Python it takes, and what it says where there is nothing to run or to install."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

#: A Python 3.N that knows nothing but its version and how to make an environment of itself, if it can.
STUB = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
    -c) echo {minor} ;;
    -m) [ "$2" = venv ] && mkdir -p "$4/bin" && cp "$0" "$4/bin/python"
        [ "$2" != {fails} ] ;;
esac
"""


class Machine:
    """Pythons of ``minors`` as pyenv installs them; the one of the main environment is the first."""

    def __init__(self, folder: Path, script: Path, minors: tuple[int, ...], fails: str = "nothing") -> None:
        self.folder, self.script = folder, script
        for minor in minors:
            path = folder / "versions" / f"3.{minor}.0" / "bin" / "python"
            path.parent.mkdir(parents=True)
            path.write_text(STUB.format(log=folder / f"log{minor}", minor=minor, fails=fails))
            path.chmod(0o755)
        self.main = folder / "versions" / f"3.{minors[0]}.0" / "bin" / "python"

    def run(self, code: int = 0, **more: str) -> str:
        """What it says, when it ends with ``code``."""
        line = ["/bin/sh", str(self.script), str(self.main), str(self.folder / "made"), "-n", "3"]
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        for name in ("mkdir", "cp", "rm", "touch"):
            (tools / name).unlink(missing_ok=True)
            (tools / name).symlink_to(next(p for d in ("/usr/bin", "/bin") if (p := Path(d, name)).exists()))
        environ = {**os.environ, "PYENV_ROOT": str(self.folder), "PATH": str(tools), **more}
        done = subprocess.run(
            line, env=environ, cwd=self.script.parent.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def asked(self, minor: int) -> list[str]:
        log = self.folder / f"log{minor}"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def script(repository: Path) -> Path:
    path = repository / "tools" / "test_newest.sh"
    if not path.exists():
        pytest.skip("an installed shardc has no tools")
    return path


def test_the_newest_of_all_runs_the_tests(script: Path, tmp_path: Path) -> None:
    machine = Machine(tmp_path, script, (11, 13, 12))
    assert "making" in machine.run()
    last = machine.asked(13)[-1].split()
    assert last[:7] == ["-m", "pytest", "--cache-clear", "--durations", "40", "--durations-min", "20"]
    assert last[7:9] == ["-n", "3"]
    folders = [a for a in last[9:] if not (script.parent.parent / a).exists()]
    assert not folders and len(last) > 20, folders
    assert not any("-m" in line for line in machine.asked(12) + machine.asked(11))
    assert "making" not in machine.run()


@pytest.mark.parametrize("minors", [(11,), (14, 13), (13, 13 - 4)])
def test_one_that_is_the_newest_has_nothing_more_to_run(script: Path, tmp_path: Path, minors: tuple[int, ...]) -> None:
    assert "nothing more to run" in Machine(tmp_path, script, minors).run()


@pytest.mark.parametrize("fails", ["venv", "pip"])
def test_packages_that_cannot_be_installed_are_a_failure(script: Path, tmp_path: Path, fails: str) -> None:
    """But for a machine that is said to be offline."""
    machine = Machine(tmp_path, script, (11, 14), fails)
    for _ in range(2):
        assert "cannot be installed for Python 3.14, so nothing was run" in machine.run(1, SHARDC_OFFLINE="0")
    assert "this is no failure" in machine.run(SHARDC_OFFLINE="1")
    assert not any("-m pytest" in line for line in machine.asked(14))
