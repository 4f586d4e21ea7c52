"""A real `shardc serve` in a process of its own, for tests: started, asked, stopped, killed, started again.

Everything lies in one folder, the port is the system's choice, and whatever happens in a test, nothing of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

__all__ = ["TOKEN", "Caller", "Problem", "Service", "children", "eventually"]

ROOT = Path(__file__).resolve().parents[2]
#: The token of every service here. It is 32 characters long, as those that the service makes itself are at least.
TOKEN = "a-token-of-the-tests-0123456789abcdef"
#: Nothing here takes as long on any machine; it keeps a test that waits from waiting forever.
DEADLINE = 120.0


@dataclass
class Service:
    """A server with its store, state and tokens below ``folder``; ``wrapper`` are words in front of its command."""

    folder: Path
    workers: int = 1
    options: Sequence[str] = ()
    wrapper: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    state: Path | None = None
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Service:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process is not None:
            self.kill()

    @property
    def store_folder(self) -> Path:
        return Path(self.store) if self.store else self.folder / "store"

    @property
    def state_folder(self) -> Path:
        return self.state if self.state is not None else self.folder / "state"

    def start(self) -> Service:
        """Start it and wait until it listens."""
        assert self.process is None
        self.folder.mkdir(parents=True, exist_ok=True)
        tokens = self.folder / "tokens"
        if not tokens.exists():
            tokens.write_text(f"tests {TOKEN}\n", encoding="utf-8")
            tokens.chmod(0o600)
        words = [sys.executable, "-m", "shardc", "serve", "--json", "--host", "127.0.0.1", "--port", "0"]
        words += ["--store", str(self.store_folder), "--state", str(self.state_folder)]
        words += ["--token-file", str(tokens), "--workers", str(self.workers), *self.options]
        out, err = self.folder / "stdout", self.folder / "stderr"
        settings = {k: v for k, v in os.environ.items() if not k.startswith("SHARDC_")}
        settings |= {"SHARDC_CACHE_DIR": str(self.folder / "cache"), "PYTHONPATH": str(ROOT), **self.environment}
        with out.open("wb") as to, err.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self.wrapper, *words], stdout=to, stderr=errors, env=settings, start_new_session=True, cwd=self.folder
            )
        try:
            said = json.loads(eventually(lambda: self._first_line(out), "the server to listen"))
        except BaseException:
            self.kill()
            raise
        self.url = said["url"]
        return self

    def _first_line(self, out: Path) -> str:
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"the server ended with {code}:\n{self.log()}"
        line, newline, _ = out.read_text(encoding="utf-8").partition("\n")
        return line if newline else ""

    def log(self) -> str:
        """What it said on stderr, over all its starts."""
        return (self.folder / "stderr").read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self) -> int:
        """Ask it to end (SIGTERM); the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(DEADLINE)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the server alone: its workers have to notice. What does not, is killed after a while."""
        assert self.process is not None
        left = children(self.process.pid)
        self.process.kill()
        self.process.wait(DEADLINE)
        self.process = None
        try:
            eventually(lambda: not any(_alive(pid) for pid in left), "the workers to end with their server", 20.0)
        finally:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def restart(self) -> Service:
        """Kill it, and start it again on the same store and state (and another port)."""
        self.kill()
        return self.start()

    @contextlib.contextmanager
    def caller(self, token: str = TOKEN) -> Iterator[Caller]:
        """Somebody who asks it."""
        with httpx.Client(base_url=self.url, headers=_bearer(token), timeout=DEADLINE, trust_env=False) as http:
            yield Caller(http)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


@dataclass(frozen=True)
class Caller:
    """Requests in one line each. What is not answered as expected is a `Problem`."""

    http: httpx.Client

    def upload(self, program: str | bytes) -> str:
        """The digest of a program that is there now."""
        body = program.encode() if isinstance(program, str) else program
        answer = self.http.post("/v1/programs", content=body, headers={"Content-Type": "application/octet-stream"})
        return str(_storage_errors(answer)["program"])

    def submit(self, kind: str, program: str, **fields: Any) -> dict[str, Any]:
        """The job of an order for the program of this digest."""
        return _storage_errors(self.http.post("/v1/jobs", json={"kind": kind, "program": program, **fields}))

    def job(self, name: str, wait: float = 0.0) -> dict[str, Any]:
        return _storage_errors(self.http.get(f"/v1/jobs/{name}", params={"wait": wait} if wait else {}))

    def over(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The same job, when it has ended in whatever way."""
        found, end = dict(job), time.monotonic() + DEADLINE
        while found["state"] in ("queued", "running"):
            assert time.monotonic() < end, f"the job is not over after {DEADLINE} s: {found}"
            found = self.job(str(job["id"]), wait=30.0)
        return found

    def made(self, kind: str, program: str | bytes, **fields: Any) -> dict[str, Any]:
        """Upload, order, wait: the job, which is done."""
        job = self.over(self.submit(kind, self.upload(program), **fields))
        assert job["state"] == "done", job
        return job

    def manifest(self, key: str) -> dict[str, Any]:
        return _storage_errors(self.http.get(f"/v1/artifacts/{key}"))

    def file(self, key: str, name: str) -> bytes:
        """The bytes of an artifact, with whatever its response says about them checked."""
        answer = self.http.get(f"/v1/artifacts/{key}/{name}")
        if answer.status_code != 200:
            raise Problem(answer)
        return answer.content

    def figures(self) -> dict[str, float]:
        """Every sample of /metrics by its name with labels, as it stands there."""
        answer = self.http.get("/metrics")
        if answer.status_code != 200:
            raise Problem(answer)
        lines = (line for line in answer.text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def figure(self, name: str) -> float:
        """The sum of all samples with this name, over their labels."""
        pattern = re.compile(rf"{re.escape(name)}(\{{.*\}})?")
        return sum(value for sample, value in self.figures().items() if pattern.fullmatch(sample))


class Problem(AssertionError):
    """An answer that is not what was asked for; ``status`` and ``problem`` (the document) say what it was."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.problem: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            self.problem = answer.json()
        super().__init__(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:2000]}")


def _storage_errors(answer: httpx.Response) -> dict[str, Any]:
    if not answer.is_success:
        raise Problem(answer)
    said = answer.json()
    assert isinstance(said, dict)
    return said


def eventually(ask: Any, what: str, seconds: float = DEADLINE) -> Any:
    """What ``ask()`` answers as soon as that is true; an `AssertionError` after a while."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.02)
    return answer


def children(pid: int) -> list[int]:
    """All processes below this one; none where the system does not tell."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text(encoding="ascii").split()):
                found += [child, *children(child)]
    return found


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
