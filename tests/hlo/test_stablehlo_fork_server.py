"""The process that stands by with MLIR loaded: reused, replaced, never shared by mistake, and gone in the end."""

from __future__ import annotations

import marshal
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardc.hlo.stablehlo.fork_server import Answer, ForkServerGone, _ForkServers

#: As the worker, without MLIR: each request names what the fork does.
SCRIPT = """
import os, resource, runpy, signal, sys, threading, time
worker = runpy.run_path({worker!r})["main"].__globals__
worker["_IDLE"] = {idle}
def loaded():
    start = {start}
    return lambda request: (start, os.getppid(), eval(request["do"]))
worker["_load_answers"] = loaded
worker["main"]()
"""


@pytest.fixture
def script(tmp_path: Path, repository: Path) -> Path:
    return written(tmp_path / "script.py", repository)


def written(path: Path, repository: Path, start: str = "os.getpid()", idle: float = 60.0) -> Path:
    worker = str(repository / "hlo" / "stablehlo" / "mlir" / "worker.py")
    path.write_text(SCRIPT.format(worker=worker, start=start, idle=idle), encoding="utf-8")
    return path


def asked(servers: _ForkServers, script: Path, do: str = "1", seconds: float = 60.0) -> Answer:
    return servers.ask(script, sys.path, {"do": do}, seconds)


def process_of(answer: Answer) -> int:
    assert answer.code == 0, answer
    started, parent, _ = marshal.loads(answer.data)
    assert started == parent
    return int(started)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    end = time.monotonic() + 20
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process is good for one request")


def test_one_process_answers_all(script: Path) -> None:
    servers = _ForkServers()
    first = asked(servers, script)
    assert {process_of(asked(servers, script, f"{n} * 'x' * 100_000")) for n in range(9)} == {process_of(first)}
    for do in ("os.abort()", "os._exit(4)", "undefined"):
        assert asked(servers, script, do).code in (-signal.SIGABRT, 4, 1)
    told = asked(servers, script, "(print('heard', file=sys.stderr), os.write(1, b'by a library'))")
    assert told.said == "heard\nby a library" and process_of(told) == process_of(first)


def test_requests_at_a_time_have_processes_of_their_own(script: Path) -> None:
    servers = _ForkServers()
    together = threading.Barrier(3)

    def ask(_: int) -> int:
        together.wait(20)
        return process_of(asked(servers, script, "time.sleep(0.3)"))

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ask, range(3)))
    assert len(set(found)) == 3
    kept = process_of(asked(servers, script))
    assert kept in found and all(gone(pid) for pid in found if pid != kept)


def test_what_went_is_replaced(script: Path, tmp_path: Path, repository: Path) -> None:
    servers = _ForkServers()
    for _ in range(2):
        pid = process_of(asked(servers, script))
        os.kill(pid, signal.SIGKILL)
        assert gone(pid) and process_of(asked(servers, script)) != pid
    elsewhere = servers.ask(script, [*sys.path, "/else"], {"do": "1"}, 60.0)
    assert process_of(elsewhere) != process_of(asked(servers, script)), "it imports from where we do"
    other = written(tmp_path / "other.py", repository, idle=0.05)
    pid = process_of(asked(servers, other))
    assert gone(pid) and process_of(asked(servers, other)) != pid
    restless = written(tmp_path / "restless.py", repository, start="os._exit(0)")
    with pytest.raises(ForkServerGone):
        asked(servers, restless)


def test_what_does_not_start_says_why(tmp_path: Path, repository: Path) -> None:
    answer = asked(_ForkServers(), written(tmp_path / "script.py", repository, start="1 / 0"))
    assert answer.code == 1 and answer.said.endswith("ZeroDivisionError: division by zero")


def test_time_is_bounded(script: Path) -> None:
    servers = _ForkServers()
    pid = process_of(asked(servers, script))
    assert asked(servers, script, "time.sleep(60)", 1.0).code == -signal.SIGALRM
    blocked = "(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]), time.sleep(60))"
    bounded = f"time.sleep(60) if os.getppid() == {os.getpid()} else {blocked}"
    assert asked(servers, script, bounded, 1.0).code == -signal.SIGALRM
    assert process_of(asked(servers, script)) == pid, "a fork's time was over, not the process's"


def test_what_hangs_is_asked_once_more(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = _ForkServers()
    pid = process_of(asked(servers, script))
    only_alone = f"os.getppid() == {os.getpid()} or time.sleep(60)"
    _, parent, ended = marshal.loads(asked(servers, script, only_alone, 1.0).data)
    assert parent == os.getpid() and ended, "a fresh process answers without a fork"
    assert process_of(asked(servers, script)) == pid
    monkeypatch.setattr("shardc.hlo.stablehlo.fork_server._GRACE", 0.1)
    os.kill(pid, signal.SIGSTOP)
    assert asked(servers, script, f"len({'x' * 1_000_000!r})", 1.0).code == 0, "nobody reads, and nobody waits for it"
    assert gone(pid) and process_of(asked(servers, script, seconds=60.0)) != pid


def test_a_process_with_threads_does_not_fork(tmp_path: Path, repository: Path) -> None:
    start = "(threading.Thread(target=time.sleep, args=(60,), daemon=True).start(), os.getpid())[1]"
    servers, script = _ForkServers(), written(tmp_path / "script.py", repository, start=start)
    found = [marshal.loads(asked(servers, script).data) for _ in range(2)]
    assert {parent for _, parent, _ in found} == {os.getpid()} and found[0][0] != found[1][0]


@pytest.mark.parametrize("killed", ["asker", "process"])
def test_nothing_stays(script: Path, tmp_path: Path, repository: Path, killed: str) -> None:
    """Killed while a fork is at work that blocks all signals: it goes, and so does who made it."""
    place = tmp_path / "pids"
    busy = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)), print(os.getppid(), os.getpid(), file=f, flush=True)"
    )
    do = f"[({busy}, time.sleep(60)) for f in [open({str(place)!r}, 'a')]]"
    code = (
        "import os, sys; from pathlib import Path; from shardc.hlo.stablehlo.fork_server import ask\n"
        "fork = os.fork()\n"  # what holds the asker's end of its pipes must not keep it alive
        f"ask(Path({str(script)!r}), {{'do': {do!r}}}, 60.0) if fork else (os.setsid(), __import__('time').sleep(30))"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=repository, stderr=subprocess.DEVNULL) as asker:
        end = time.monotonic() + 30
        while not (place.exists() and place.read_text(encoding="ascii").endswith("\n")) and time.monotonic() < end:
            time.sleep(0.01)
        process, fork = map(int, place.read_text(encoding="ascii").split())
        os.kill(asker.pid if killed == "asker" else process, signal.SIGKILL)
        assert gone(fork) and gone(process)


def test_a_fork_may_take_what_its_asker_may(script: Path) -> None:
    servers = _ForkServers()
    asked(servers, script)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    question = "resource.getrlimit(resource.RLIMIT_FSIZE)[0]"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        bounded = asked(servers, script, f"1 / ({question} == 1 << 20)")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert process_of(bounded) == process_of(asked(servers, script, f"1 / ({question} != 1 << 20)"))


def test_an_interrupt_leaves_nothing_behind(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = _ForkServers()
    pid = process_of(asked(servers, script))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shardc.hlo.stablehlo.fork_server._ForkServer._hear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked(servers, script)
    assert gone(pid) and process_of(asked(servers, script)) != pid


def test_it_goes_with_its_process_and_a_fork_has_its_own(repository: Path) -> None:
    code = """
import os, sys
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.stablehlo.fork_server import _fork_servers
text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {return %a : tensor<2xf32>}"
def pid():
    return _fork_servers(os.getpid())._idle[0]._process.pid
read_stablehlo(text)
assert len(os.listdir(f"/proc/{pid()}/task")) == 1
print(pid(), flush=True)
fork = os.fork()
if not fork:
    read_stablehlo(text)
    print(pid(), flush=True)
    sys.exit()
os.waitpid(fork, 0)
read_stablehlo(text)
print(pid(), flush=True)
"""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    first, forked, again = map(int, done.stdout.split())
    assert first == again != forked
    assert gone(first) and gone(forked)
