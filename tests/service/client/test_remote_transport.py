"""Answers byte by byte, as servers and proxies may send them: nothing of one is ever taken for the next."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.client.transport import HttpTransport, Unreachable, lines, pieces

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#: A scripted answer: sends, waits, ends, and returns whether the connection stays.
Answer = Callable[[socket.socket], bool]


def sent(*parts: bytes, stays: bool = True) -> Answer:
    def answer(there: socket.socket) -> bool:
        for part in parts:
            there.sendall(part)
        return stays

    return answer


@contextmanager
def scripted(*answers: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers in turn; its URL, and the heads of what it was asked."""
    asked: list[str] = []
    left = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        def serve() -> None:
            while left:
                with listening.accept()[0] as there:
                    there.settimeout(10)
                    while left and (head := _head(there)):
                        asked.append(head)
                        if not left.pop(0)(there):
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join(20)
        assert not thread.is_alive()


def _head(there: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        part = there.recv(1)
        if not part:
            return ""
        data += part
    return data.decode()


def body(transport: HttpTransport, path: str = "/", silence: float = 10.0) -> bytes:
    with transport.ask("GET", path, None, {}, 5.0, silence) as answer:
        return b"".join(pieces(answer))


def test_one_connection_serves_many_questions() -> None:
    with (
        scripted(sent(OK), sent(OK), sent(OK)) as (url, asked),
        closing(HttpTransport(url, {"X-A": "b"}, direct=True)) as transport,
    ):
        assert [body(transport, f"/{n}") for n in range(3)] == [b"ok"] * 3
        assert [head.split()[1] for head in asked] == ["/0", "/1", "/2"] and "X-A: b" in asked[0]


def test_what_is_left_of_an_answer_is_nobodys() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + 300_000 * b"x"
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with scripted(sent(long, stays=False), sent(chunks, stays=False), sent(OK)) as (url, _):  # noqa: SIM117
        with closing(HttpTransport(url, {}, direct=True)) as transport:
            for _ in range(2):
                with transport.ask("GET", "/", None, {}, 5.0, 10.0) as answer:
                    next(pieces(answer))
            assert body(transport) == b"ok"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",), "IncompleteRead"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",), "IncompleteRead"),
        ((b"",), "Remote end closed connection without response"),
        ((b"nothing of the kind\r\n\r\n",), "nothing of the kind"),
    ],
)
def test_half_an_answer_is_none(parts: tuple[bytes, ...], reason: str) -> None:
    with (
        scripted(sent(*parts, stays=False), sent(OK)) as (url, _),
        closing(HttpTransport(url, {}, direct=True)) as transport,
    ):
        with pytest.raises(Unreachable, match=reason):
            body(transport)
        assert body(transport) == b"ok"


def test_silence_ends() -> None:
    over = threading.Event()
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"

    def silent(there: socket.socket) -> bool:
        there.sendall(begun)
        return not over.wait(10)

    with scripted(silent) as (url, _), closing(HttpTransport(url, {}, direct=True)) as transport:
        with pytest.raises(Unreachable, match="timed out"):
            body(transport, silence=0.05)
        over.set()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with (
        closing(HttpTransport(f"http://127.0.0.1:{port}", {}, direct=True)) as transport,
        pytest.raises(Unreachable) as caught,
    ):
        body(transport)
    assert str(caught.value) == "Connection refused"
    with (
        closing(HttpTransport("http://no.such.host.invalid", {}, direct=True)) as transport,
        pytest.raises(Unreachable) as caught,
    ):
        body(transport)
    assert "0x" not in str(caught.value) and "no.such.host" not in str(caught.value)


@pytest.mark.parametrize("chunked", [True, False])
def test_lines_come_as_they_are_sent(chunked: bool) -> None:
    """Also in the middle of a character; by HTTP/1.1, and by a proxy that knows only the connection's end."""
    parts = ["data: é".encode()[:-1], "é".encode()[1:] + b"\r\n", b"\ndata: 2\n\n"]
    came = threading.Semaphore(0)

    def slowly(there: socket.socket) -> bool:
        there.sendall(b"HTTP/1.1 200 OK\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
        for number, part in enumerate(parts):
            there.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            if number == 1:
                assert came.acquire(timeout=10), "the first line is there before the second is sent"
        there.sendall(b"0\r\n\r\n" if chunked else b"")
        return False

    found = []
    with scripted(slowly) as (url, _), closing(HttpTransport(url, {}, direct=True)) as transport:  # noqa: SIM117
        with transport.ask("GET", "/", None, {}, 5.0, 10.0) as answer:
            for line in lines(answer):
                found.append(line)
                came.release()
    assert found == ["data: é", "", "data: 2", ""]


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    with scripted(sent(OK), sent(OK)) as (url, asked):
        monkeypatch.setenv("http_proxy", url.replace("http://", "http://us%40er:word@"))
        with closing(HttpTransport("http://far.invalid:8377", {"Authorization": "Bearer t"}, direct=False)) as through:
            assert body(through, "/v1") == b"ok"
        monkeypatch.setenv("http_proxy", url.removeprefix("http://"))
        with closing(HttpTransport("http://far.invalid:8377", {}, direct=False)) as through:
            assert body(through, "/v1") == b"ok"
    first, second = asked
    assert first.startswith("GET http://far.invalid:8377/v1 HTTP/1.1\r\n") and "Host: far.invalid:8377" in first
    assert "Bearer t" in first and "roxy-authorization: Basic dXNAZXI6d29yZA==" in first
    assert "roxy-" not in second
    with scripted(sent(OK), sent(OK)) as (url, asked):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with closing(HttpTransport(url, {}, direct=True)) as past:
            assert body(past) == b"ok"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with closing(HttpTransport(url, {}, direct=False)) as past:
            assert body(past) == b"ok"
    assert all(head.startswith("GET / HTTP/1.1\r\n") for head in asked)
    monkeypatch.setenv("http_proxy", "socks5://user:secret@127.0.0.1:9")
    with (
        closing(HttpTransport("http://far.invalid", {}, direct=False)) as through,
        pytest.raises(EnvironmentProblem) as caught,
    ):
        body(through)
    assert "socks5://127.0.0.1:9" in str(caught.value) and "secret" not in str(caught.value)
    assert "NO_PROXY" in str(caught.value)
