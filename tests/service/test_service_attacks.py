"""Clients that vanish, dawdle or mean harm: the service answers with an error or hangs up, and serves the others."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.service.service_harness import TOKEN, Caller, Problem, Service, eventually
from tests.service.service_programs import large, small

HEAD = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
BYTES = {"Content-Type": "application/octet-stream"}
LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ("--max-upload", "4M", "--time-limit", "120", "--memory-limit", "2G")
    with Service(tmp_path_factory.mktemp("attacked"), options=options) as service:
        yield service


@pytest.fixture
def caller(service: Service) -> Iterator[Caller]:
    """Somebody honest, who is served before and after."""
    with service.caller() as caller:
        yield caller
        assert caller.made("inspect", small(0))["state"] == "done"


def connected(service: Service) -> socket.socket:
    at = urlsplit(service.url)
    return socket.create_connection((at.hostname, at.port), timeout=30)


def hang_up(line: socket.socket) -> None:
    """End a connection as a machine does that loses its power: no goodbye, only a reset."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def raw(service: Service, request: bytes) -> bytes:
    """What the server answers to these bytes, up to 64 KiB, until it closes or falls silent."""
    answer = b""
    with connected(service) as line:
        line.settimeout(1)
        with contextlib.suppress(ConnectionError, TimeoutError):
            line.sendall(request)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while len(answer) < 65536 and (got := line.recv(65536)):
                answer += got
    return answer


def descriptors(service: Service) -> int:
    return len(list(Path(f"/proc/{service.pid}/fd").iterdir()))


@LINUX
def test_clients_that_vanish(service: Service, caller: Caller) -> None:
    """In the middle of an upload, of a job's events, of a long wait, of a download: nothing is kept open for them."""
    job = caller.made("compile", small(1))
    slow = caller.submit("compile", caller.upload(large(20, 1)), page=False)
    before = descriptors(service)
    requests = (
        f"POST /v1/programs HTTP/1.1\r\n{HEAD}Content-Length: 1000000\r\n\r\nHloModule half",
        f"POST /v1/jobs HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n" + '{"kind": ',
        f"GET /v1/jobs/{slow['id']}/events HTTP/1.1\r\n{HEAD}\r\n",
        f"GET /v1/jobs/{slow['id']}?wait=60 HTTP/1.1\r\n{HEAD}\r\n",
        f"GET /v1/artifacts/{job['key']}/executable.shardc HTTP/1.1\r\n{HEAD}\r\n",
        "GET /v1/jobs HT",
    )
    lines = [connected(service) for _ in requests * 4]
    for line, request in zip(lines, requests * 4, strict=True):
        line.sendall(request.encode())
    time.sleep(0.3)
    for line in lines:
        hang_up(line)
    job = caller.over(slow)
    assert job["state"] == "done", f"a job goes on without the one who asked: {job}"
    eventually(lambda: descriptors(service) <= before + 2, "the connections of vanished clients to be closed", 30)
    assert not list(service.store_folder.glob("**/*.tmp*"))


def test_an_upload_that_stops_half_way_is_nowhere(service: Service, caller: Caller) -> None:
    programs = {p for p in service.store_folder.rglob("*") if p.is_file()}
    line = connected(service)
    line.sendall(f"POST /v1/programs HTTP/1.1\r\n{HEAD}Content-Length: 100\r\n\r\nHloModule".encode())
    line.shutdown(socket.SHUT_WR)
    line.settimeout(30)
    with contextlib.suppress(ConnectionError):
        assert b" 201 " not in line.recv(4096)
    line.close()
    assert {p for p in service.store_folder.rglob("*") if p.is_file()} == programs


def test_slow_clients_keep_nobody_waiting(service: Service, caller: Caller) -> None:
    """A hundred connections that send a letter now and then, and others are answered at once."""
    with contextlib.ExitStack() as lines:
        slow = [lines.enter_context(connected(service)) for _ in range(100)]
        for line in slow:
            line.sendall(b"GET /v1/jobs HTTP/1.1\r\nX-")
        start = time.monotonic()
        for _ in range(10):
            assert caller.http.get("/v1/machines").status_code == 200
        assert time.monotonic() - start < 10
        for line in slow:
            line.sendall(b"a")


#: What a path could be made of to leave the store, as it goes over the wire.
PATHS = (
    "../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/state/key",
    "%2e%2e%2f%2e%2e%2fstate%2fkey",
    "..%5c..%5cstate%5ckey",
    "/etc/passwd",
    "%00",
    "report.json%00.html",
    "report.json/../../../../state/key",
    "%c0%ae%c0%ae/key",
    "~root/.profile",
    "file:%2f%2f%2fetc%2fpasswd",
    "report.json%0d%0aX-Evil: 1",
)


def test_no_path_leads_out_of_the_store(service: Service, caller: Caller) -> None:
    key = caller.made("partition", small(2))["key"]
    secret = (service.state_folder / "key").read_bytes()
    for prefix in (
        f"/v1/artifacts/{key}/",
        "/v1/artifacts/",
        "/v1/programs/",
        "/v1/jobs/",
        "/explorer/",
        "/docs/",
        "/",
    ):
        for path in PATHS:
            answer = raw(service, f"GET {prefix}{path} HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n".encode())
            status = answer.split(b" ", 2)[1] if b" " in answer else b""
            assert status in (b"400", b"404", b"405", b"422", b"401"), (prefix, path, answer[:200])
            assert b"root:" not in answer
            assert secret not in answer
            assert secret.hex().encode() not in answer
            assert b"\r\nX-Evil" not in answer


#: Requests that are none, or that two readers could read differently.
NONSENSE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    b"\r\n\r\n\r\n",
    b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-A: " + b"a" * 1_000_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /v1/jobs HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(50_000)) + b"\r\n",
    f"POST /v1/programs HTTP/1.1\r\n{HEAD}Content-Length: -5\r\n\r\n".encode(),
    f"POST /v1/programs HTTP/1.1\r\n{HEAD}Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello".encode(),
    f"POST /v1/programs HTTP/1.1\r\n{HEAD}Content-Length: 99999999999999999999\r\n\r\n".encode(),
    f"POST /v1/programs HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n".encode(),
    f"POST /v1/programs HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n".encode(),
)


def test_requests_that_are_none(service: Service, caller: Caller) -> None:
    for request in NONSENSE:
        answer = raw(service, request)
        assert b" 200 " not in answer[:20], request[:80]
        assert b" 201 " not in answer[:20], request[:80]
        assert b" 500 " not in answer[:20], (request[:80], answer[:500])
    assert "Traceback" not in service.log()


def test_a_body_that_breaks_off_after_the_answer(service: Service, caller: Caller) -> None:
    with connected(service) as line:
        line.settimeout(30)
        line.sendall(f"POST /v1/programs HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        assert line.recv(65536).startswith(b"HTTP/1.1 415 ")
        with contextlib.suppress(ConnectionError):
            line.sendall(b"zz\r\nhello\r\n0\r\n\r\n")
            while line.recv(65536):
                pass
    assert caller.http.get("/healthz").status_code == 200
    assert "Traceback" not in service.log() and "Fatal" not in service.log()


def test_too_much(service: Service, caller: Caller) -> None:
    """Said in advance, or not: what is larger than the limit is refused, and not kept until then."""
    answer = caller.http.post("/v1/programs", content=b"x" * 5_000_000, headers=BYTES)
    assert answer.status_code == 413
    assert answer.json()["error"] == "InputError"
    with contextlib.suppress(OSError):  # it may hang up while we still send
        answer = caller.http.post("/v1/programs", content=iter([b"x" * 65536] * 100), headers=BYTES)
        assert answer.status_code == 413
    with contextlib.suppress(OSError):
        answer = caller.http.post("/v1/jobs", content=b" " * 50_000_000, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413


def test_documents_that_are_traps(service: Service, caller: Caller) -> None:
    """Deep, huge, double, not quite JSON: refused as the input that they are."""
    program = caller.upload(small(0))
    order = {"kind": "partition", "program": program}
    bodies = [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        json.dumps({**order, "mesh": {"x": 10**400}}).encode(),
        json.dumps({**order, "mesh": {f"a{n}": 2 for n in range(10_000)}}).encode(),
        json.dumps({**order, "mesh": {"x": 2**40, "y": 2**40}}).encode(),
        json.dumps({**order, "mesh": {"x": -1}}).encode(),
        json.dumps({**order, "settings": {"overlap_memory": 1}}).replace("1}", "NaN}").encode(),
        json.dumps({**order, "settings": {"overlap_memory": 1}}).replace("1}", "1e999}").encode(),
        json.dumps({**order, "name": "\ud800"}).encode(),
        json.dumps({**order, "__class__": "os.system"}).encode(),
        json.dumps({**order, "machine": "/etc/passwd"}).encode(),
        json.dumps({**order, "machine": "../machines/host.toml"}).encode(),
        json.dumps({**order, "machine": "this"}).encode(),
        json.dumps({**order, "machine_text": "x" * 3_000_000}).encode(),
        json.dumps({**order, "program": "../" * 10}).encode(),
        b"\xff\xfe{}",
        b"null",
        b"",
        b'{"kind":"partition","kind":"compile"}',
    ]
    for body in bodies:
        answer = caller.http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        if answer.is_success:
            job = caller.over(answer.json())
            assert job["state"] == "failed", (body[:200], job)
            problem = job["problem"]
        else:
            assert answer.status_code in (400, 404, 413, 415, 422), (body[:200], answer.text)
            problem = answer.json()
        assert problem["error"] in ("InputError", "AnnotationError", "ParseError", "UnsupportedError"), (
            body[:200],
            problem,
        )
        assert "root:" not in json.dumps(problem)
    assert "Traceback" not in service.log()


def _deep(levels: int) -> str:
    """A tuple in a tuple in a tuple."""
    return f"HloModule deep\n\nENTRY main {{\n  ROOT p = {'(' * levels}f32[]{')' * levels} parameter(0)\n}}\n"


def _chain(calls: int) -> str:
    """Functions that call the next one twice: two to the power of ``calls`` operations, in a few lines."""
    twice = "  a = f32[] call(x), to_apply=fun{1}\n  b = f32[] call(x), to_apply=fun{1}\n"
    doubled = "fun{0} {{\n  x = f32[] parameter(0)\n" + twice
    parts = ["HloModule calls\n\nfun0 {\n  x = f32[] parameter(0)\n  ROOT y = f32[] add(x, x)\n}\n"]
    parts += [doubled.format(n, n - 1) + "  ROOT y = f32[] add(a, b)\n}\n" for n in range(1, calls)]
    parts += [f"ENTRY main {{\n  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=fun{calls - 1}\n}}\n"]
    return "\n".join(parts)


TERABYTES = """HloModule terabytes

ENTRY main {
  one = f32[] constant(1)
  ones = f32[1000000,1000000]{1,0} broadcast(one), dimensions={}
  i = s32[1000000,1000000]{1,0} iota(), iota_dimension=0
  f = f32[1000000,1000000]{1,0} convert(i)
  ROOT s = f32[1000000,1000000]{1,0} add(ones, f)
}
"""
WIDE = """HloModule wide

ENTRY main {
  p = f32[9999999999,9999999999,9999999999]{2,1,0} parameter(0)
  ROOT n = f32[9999999999,9999999999,9999999999]{2,1,0} negate(p)
}
"""
ALIEN = """HloModule alien

ENTRY main {
  p = f32[4]{0} parameter(0)
  ROOT c = f32[4]{0} custom-call(p), custom_call_target="system", backend_config="/bin/sh"
}
"""
BOMBS = {
    "not a program": "GIF89a" + "x" * 1000,
    "deep types": _deep(5_000),
    "calls that double": _chain(40),
    "a constant of terabytes": TERABYTES,
    "sizes beyond 64 bits": WIDE,
    "unknown custom call": ALIEN,
    "many dimensions": "HloModule d\n\nENTRY main {\n  ROOT p = f32[" + "1," * 20_000 + "1] parameter(0)\n}\n",
    "broken bytecode": "ML\xefR\x01" + "\x00\xff" * 500,
}


#: What only the limit of time ends.
SLOW = ("calls that double",)


@pytest.mark.parametrize("bomb", [pytest.param(b, marks=pytest.mark.full if b in SLOW else ()) for b in BOMBS])
def test_programs_that_are_bombs(service: Service, caller: Caller, bomb: str) -> None:
    """They fail with an error of the library's, or are dealt with; within the limits, and without the server."""
    body = BOMBS[bomb].encode("latin-1")
    try:
        program = caller.upload(body)
    except Problem as e:
        assert e.status in (400, 413, 415, 422), e
        return
    for kind, fields in (("inspect", {}), ("compile", {"page": False})):
        job = caller.over(caller.submit(kind, program, **fields))
        if job["state"] == "failed":
            assert "Traceback" not in str(job["problem"])
            assert job["problem"]["what"]


EVIL = "<script>alert(1)</script>\r\nSet-Cookie: a=b \u202e'\"><img src=x onerror=alert(2)>"


def test_names_are_text_wherever_they_are_shown(service: Service, caller: Caller) -> None:
    """A name with markup and line breaks: refused, or shown as the letters that it is."""
    program = caller.upload(small(3))
    answer = caller.http.post("/v1/jobs", json={"kind": "report", "program": program, "name": EVIL})
    if answer.status_code == 422:
        return
    job = caller.over(answer.json())
    if job["state"] == "done":
        page = caller.file(job["key"], "report.html").decode()
        assert "<script>alert(1)" not in page
        assert "<img src=x" not in page
    said = caller.http.get(f"/v1/jobs/{job['id']}")
    assert "set-cookie" not in said.headers
    assert said.json()["name"] == EVIL


def test_pages_are_shut_in(service: Service, caller: Caller) -> None:
    """What browsers are told about what they show."""
    job = caller.made("report", small(4))
    page = caller.http.get(f"/v1/artifacts/{job['key']}/report.html")
    assert "sandbox" in page.headers["content-security-policy"]
    assert "allow-same-origin" not in page.headers["content-security-policy"]
    for path in ("/", "/v1/machines", f"/v1/artifacts/{job['key']}/report.json"):
        headers = caller.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert "access-control-allow-origin" not in headers, path
    front = caller.http.get("/").headers["content-security-policy"]
    assert "unsafe-inline" not in front
    assert "unsafe-eval" not in front


def test_other_origins_are_refused(service: Service, caller: Caller) -> None:
    """A page of somebody else's, in the browser of who uses the service, gets no answer that it can read."""
    answer = caller.http.options(
        "/v1/jobs", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert "access-control-allow-origin" not in answer.headers
    assert answer.status_code >= 400
