"""The server as a process: where it listens, how it ends, and connections that would never end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import uvicorn
from api_fakes import PROGRAM, FakeScheduler

from shardc.cli.app import main
from shardc.cli.commands.serve import parse_size
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.service.api.app import create_app
from shardc.service.api.connection import TimedConnection
from shardc.service.api.context import ApiSettings, Ending
from shardc.service.api.web import listen, run_web, url_of
from shardc.service.folders import default_state
from shardc.service.serve import ServeSettings, serve
from shardc.service.store.store import Store
from tests.service.service_harness import ROOT, Service


class ShortTimeouts(TimedConnection):
    head_seconds = read_seconds = 0.3


@pytest.fixture
def app(tmp_path):
    store = Store(str(tmp_path / "store"), tmp_path / "state", 10**9, b"k" * 32)
    yield create_app(FakeScheduler(store), store, ApiSettings(stall_seconds=0.3))  # type: ignore[arg-type]
    store.close()


@asynccontextmanager
async def served(app):
    """The port of a server in this thread."""
    config = uvicorn.Config(app, http=ShortTimeouts, lifespan="off", log_config=None, ws="none", timeout_keep_alive=20)
    config.h11_max_incomplete_event_size = 64 * 1024
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listening:
        running = asyncio.ensure_future(server._serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            yield listening.getsockname()[1]
        server.should_exit = True
        await running


async def sent(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause)
        return await reader.read()
    except ConnectionError:
        return b"closed"
    finally:
        writer.close()


ORDER = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"GET /healthz HT"],
        [HEAD[n : n + 1] for n in range(len(HEAD))],
        [HEAD + b"\r\n", *[b"G" for _ in range(30)]],
    ],
    ids=["nothing", "half a line", "letter by letter", "a second request that never ends"],
)
def test_a_head_that_never_ends_is_given_up(app, parts):
    async def scenario():
        async with served(app) as port:
            answer = await sent(port, *parts, pause=0.02)
            assert b"200 OK" in answer or answer in (b"", b"closed")

    asyncio.run(scenario())


def test_requests_one_after_the_other_keep_their_connection(app):
    async def scenario():
        async with served(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(HEAD + b"\r\n")
                assert b"200 OK" in await reader.readuntil(b"}")
                await asyncio.sleep(0.5)  # longer than a head may take
            writer.close()

    asyncio.run(scenario())


def test_an_answer_that_nobody_reads_is_given_up(app):
    data = bytes(30_000_000)
    app.state.context.store.put("0" * 64, {"executable.shardc": data}, {})

    async def scenario():
        async with served(app) as port:
            request = HEAD.replace(b"/healthz", b"/v1/artifacts/" + b"0" * 64 + b"/executable.shardc") + b"\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(1.0)
            with contextlib.suppress(ConnectionError):
                assert len(await reader.read()) < len(data)
            writer.close()

            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(data)) == data
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n", b" 400 "),
        (b"nonsense\r\n\r\n", b" 400 "),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", b" 4"),
        (ORDER + b"Content-Length: 9\r\n\r\n{", b" 408 "),
    ],
    ids=["large header", "no HTTP", "two lengths", "a body that stalls"],
)
def test_requests_that_are_none(app, data, status):
    async def scenario():
        async with served(app) as port:
            answer = await sent(port, data + (b"Connection: close\r\n\r\n" if status == b" 4" else b""))
            assert status in answer.split(b"\r\n")[0] or answer == b"closed"
            assert b"application/problem+json" in answer or answer == b"closed"

    asyncio.run(scenario())


def test_what_is_no_http_is_a_problem_like_others(app):
    async def scenario():
        async with served(app) as port:
            for data in (b"nonsense\r\n\r\n", ORDER + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
                head, _, body = (await sent(port, data)).partition(b"\r\n\r\n")
                assert b" 400 " in head.split(b"\r\n")[0] and b"application/problem+json" in head
                assert json.loads(body)["error"] == "InputError"

    asyncio.run(scenario())


CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        ORDER + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n" + CHUNKS,
        ORDER + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ORDER.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n" + CHUNKS,
        ORDER + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        ORDER + b"Content-Length: 2, 3\r\n\r\n{}",
        ORDER + b"Content-Length: +2\r\n\r\n{}",
        ORDER + b"Content-Length: 1 2\r\n\r\n{}",
        ORDER + b"Content-Length : 2\r\n\r\n{}",
        ORDER + b"Content-Length: 0x2\r\n\r\n{}",
        ORDER + b"Content-Length:\r\n 2\r\n\r\n{}",
        ORDER + b"Content-Length:\r\n\r\n{}",
        ORDER + b"X-Folded: a\r\n\tContent-Length: 2\r\n\r\n{}",
        ORDER + b"Transfer-Encoding: identity\r\n\r\n{}",
        ORDER + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
        ORDER + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKS,
        ORDER + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
        ORDER + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
        ORDER + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
        ORDER + b"Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\n+0\r\n\r\n",
        ORDER + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        ORDER + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        ORDER + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
        ORDER + b"Transfer-Encoding: chunked\r\n\r\n" + 30 * b"0" + b"2\r\n{}\r\n0\r\n\r\n",
        ORDER + b"Content-Length: 2\rX: y\r\n\r\n{}",
        ORDER + b"Content-Length: 2\x00\r\n\r\n{}",
    ],
)
def test_a_request_whose_end_is_not_certain_is_the_last(app, data):
    """What follows it could be a request to us and a body to others: it is never answered, whatever came before."""
    follows = HEAD.replace(b"/healthz", b"/v1/limits") + b"\r\n"

    async def scenario():
        async with served(app) as port:
            for before in (b"", HEAD + b"\r\n"):
                answers = re.split(rb"HTTP/1.1 (?=\d)", await sent(port, before + data + follows))[1:]
                statuses = [int(answer[:3]) for answer in answers]
                assert statuses[:-1] == [200] * bool(before), answers
                assert 400 <= statuses[-1] < 500 and b"connection: close" in answers[-1].lower(), answers

    asyncio.run(scenario())


def test_beyond_so_many_connections_requests_are_told_to_come_again(app, monkeypatch):
    monkeypatch.setattr(ShortTimeouts, "most_connections", 3)
    monkeypatch.setattr(ShortTimeouts, "head_seconds", 30.0)

    async def scenario():
        async with served(app) as port:
            close = HEAD + b"Connection: close\r\n\r\n"
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            head, _, body = (await sent(port, close)).partition(b"\r\n\r\n")
            assert b" 503 " in head.split(b"\r\n")[0] and b"retry-after: 1" in head.lower()
            assert json.loads(body)["error"] == "RunError"
            for _, writer in idle:
                writer.close()
                await writer.wait_closed()
            await asyncio.sleep(0.1)
            assert b" 200 " in await sent(port, close)

    asyncio.run(scenario())


def test_a_taken_port_and_a_host_that_is_none():
    with listen("127.0.0.1", 0) as taken:
        assert url_of(taken) == f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EnvironmentProblem, match="cannot listen"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(EnvironmentProblem, match="cannot be used"):
        listen("no such host", 0)


def test_a_signal_ends_jobs_before_connections(app):
    ended = []
    before = signal.getsignal(signal.SIGTERM)
    with listen("127.0.0.1", 0) as listening:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        run_web(app, listening, app.state.context.ending, ended.append, timer.start)
        timer.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert (ended, app.state.context.ending.draining) == ([False], True)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_terminal_that_goes_ends_the_server_in_good_order_unless_that_is_ignored(app):
    before = signal.getsignal(signal.SIGHUP)
    hang_up, end = (partial(os.kill, os.getpid(), number) for number in (signal.SIGHUP, signal.SIGTERM))
    for handler, kills in ((signal.SIG_DFL, [hang_up]), (signal.SIG_IGN, [hang_up, end])):
        ended: list[bool] = []
        timers = [threading.Timer(0.3 * n, kill) for n, kill in enumerate(kills, 1)]
        signal.signal(signal.SIGHUP, handler)
        try:
            with listen("127.0.0.1", 0) as listening:
                run_web(app, listening, Ending(), ended.append, lambda timers=timers: [t.start() for t in timers])
            assert timers[-1].finished.wait(0.1), "it ended too early"
        finally:
            signal.signal(signal.SIGHUP, before)
            for timer in timers:
                timer.cancel()
        assert ended == [False]


def test_a_second_signal_hurries(app):
    ended, hurried = [], threading.Event()

    def end_jobs(hurry: bool) -> None:
        ended.append(hurry)
        if hurry:
            hurried.set()
        else:
            os.kill(os.getpid(), signal.SIGINT)
            assert hurried.wait(30)

    with listen("127.0.0.1", 0) as listening:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
        run_web(app, listening, app.state.context.ending, end_jobs, timer.start)
        timer.join()
    assert ended == [False, True]


def test_a_server_tells_whoever_follows_a_job_that_it_ends(tmp_path):
    with Service(tmp_path, options=("--grace", "0")) as service, service.caller() as caller:
        job = caller.submit("compile", caller.upload(PROGRAM))
        with caller.http.stream("GET", f"{job['href']}/events") as events:
            lines = events.iter_lines()
            assert next(lines) == "event: job"
            assert service.stop() == 0
            states = [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
        assert states[-1] in ("queued", "done")
        assert "Traceback" not in service.log()


@pytest.mark.mpi
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_log_that_cannot_be_written_costs_no_request(tmp_path):
    words = [sys.executable, "-m", "shardc", "serve", "--json", "-v", "--port", "0", "--workers", "1"]
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [*words, "--store", str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=full, cwd=ROOT
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            for _ in range(2):
                assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"status": "ok"}
            process.terminate()
            process.wait(60)
        finally:
            process.kill()


def test_under_mpirun_one_rank_serves_and_the_others_work(tmp_path):
    wrapper = (sys.executable, "-m", "shardc", "mpiexec", "-n", "3")
    with Service(tmp_path, workers=0, wrapper=wrapper) as service, service.caller() as caller:
        about = caller.http.get("/v1/info").json()
        assert (about["executor"], about["workers"]) == ("mpi", 2)
        assert caller.made("partition", PROGRAM)["entry"]["artifacts"]
        os.kill(json.loads((tmp_path / "stdout").read_text())["pid"], signal.SIGTERM)
        assert service.process is not None
        assert service.process.wait(60) == 0
        assert service.log().count("serving on") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "without tokens, everyone who can reach 0.0.0.0 could use the service"),
        (["--store-size", "much"], "'much' is not a size"),
        (["-q", "--token-file", "/nowhere/tokens"], "the new token would not be shown"),
    ],
)
def test_what_serve_refuses(tmp_path, capsys, words, said):
    assert main(["serve", "--store", str(tmp_path / "store"), "--port", "0", "--workers", "1", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert said in told


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(EnvironmentProblem, match="uvicorn") as caught:
        serve(ServeSettings(store=str(tmp_path), state=tmp_path / "state"), lambda serving: None, print)
    assert "shardc[serve]" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10**10), ("512M", 512 * 10**6), ("64MiB", 64 * 2**20), ("1.5k", 1500), ("0", 0)]
)
def test_sizes(text, size):
    assert parse_size(text, "--store-size") == size


@pytest.mark.parametrize("text", ["", "-1", "10X", "G", "10i", "inf"])
def test_what_is_no_size(text):
    with pytest.raises(InputError, match="not a size"):
        parse_size(text, "--store-size")


def test_where_the_state_is(tmp_path):
    assert default_state(str(tmp_path)) == tmp_path / "state"
    assert default_state(f"file://{tmp_path}") == tmp_path / "state"
    one, other = default_state("s3://bucket/a"), default_state("s3://bucket/b")
    assert one != other
    assert "bucket" not in str(one)
