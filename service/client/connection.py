"""One client's HTTP connection to a compile service: which requests are repeated, and what answers mean.

Everything that is asked can be asked twice: programs and results are named by their content, and a second order for
the same is the same work. So what the network loses is asked for again, a few times, before the service is away.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shardc.hlo.errors import EnvironmentProblem, RunError, ShardcError
from shardc.launcher.executors.problems import from_problem
from shardc.service.client.address import Address
from shardc.service.client.transport import HttpTransport, Unreachable, lines, pieces

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

__all__ = ["Connection", "ServiceAway", "Unknown"]

#: Seconds to wait before asking again, each time: a service that never answered, and one that may be restarting.
_FIRST, _PAUSES = (0.1, 0.4), (0.1, 0.4, 1.5, 4.0, 8.0)
#: Bytes of the longest error.
_PROBLEM = 1 << 20
#: Answers that say: later. What they say about how long is believed up to so many seconds.
_LATER, _LONGEST = (429, 502, 503, 504), 10.0


class ServiceAway(EnvironmentProblem):
    """The service does not answer, or cannot do so now."""


class Unknown(ShardcError):
    """The service has no such thing; ``missing`` are programs that it wants to be sent."""

    missing: tuple[str, ...] = ()


class Connection:
    """Asks the service at ``address``; ``timeout`` are the seconds that connecting, and silence, may take.

    ``retry``: what fails is asked for again. To be closed, by ``with`` or `close`; the next question opens it again.
    Questions raise `EnvironmentProblem` where urllib3 is missing.
    """

    def __init__(self, address: Address, *, timeout: float = 30.0, retry: bool = True) -> None:
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "shardc"}
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        self.address = address
        self._retry, self._met = retry, False
        self._timeout = timeout
        # Nobody between is to hear of what stays on this computer.
        self._transport = HttpTransport(address.url, _latin(headers), direct=address.loopback)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, if there is one."""
        self._transport.close()

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The answer's data. ``options`` are those of `ask`."""
        data = self.read(method, path, **options)
        try:
            return json.loads(data)
        except ValueError:
            raise RunError(
                "the answer is not JSON: is this a compile service?", where=f"{method} {self.address.url}{path}"
            ) from None

    def read(self, method: str, path: str, **options: Any) -> bytes:
        """The answer to ``method path``. ``options`` are those of `ask`."""
        return self.ask(method, path, **options)[0]

    def ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        media_type: str = "application/octet-stream",
        wait: float = 0.0,
        limit: int = 1 << 28,
    ) -> tuple[bytes, Mapping[str, str]]:
        """The answer to ``method path``, of at most ``limit`` bytes, and its headers; the service may take ``wait``
        seconds longer.

        Raises what the service reports, `Unknown` for what it does not have, and `ServiceAway`.
        """
        problem: ShardcError
        tries = 0
        while True:
            pause = self._pause(tries)
            tries += 1
            try:
                with self._stream(method, path, content, media_type, wait) as answer:
                    self._met = True
                    where, good = f"{method} {self.address.url}{path}", 200 <= answer.status < 300
                    data = _body(answer, limit if good else _PROBLEM, where)
                    if good:
                        return data, answer.headers
                    problem = _problem(answer, data, where)
                    if answer.status not in _LATER:
                        raise problem
                    pause = None if pause is None else max(pause, _retry_after(answer))
            except Unreachable as e:
                problem = ServiceAway(
                    f"the compile service does not answer: {e}",
                    where=self.address.url,
                    fix="is `shardc serve` running there?",
                )
            if pause is None:
                raise problem
            time.sleep(pause)

    def _pause(self, tries: int) -> float | None:
        """Seconds to wait after so many tries; None: that was the last."""
        pauses = () if not self._retry else _PAUSES if self._met else _FIRST
        return pauses[tries] if tries < len(pauses) else None

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Name and data of each server-sent event at ``path`` until the service ends; `ServiceAway` if it goes."""
        where = f"GET {self.address.url}{path}"
        try:
            with self._stream("GET", path, None, "", 60.0) as answer:
                if answer.status != 200:
                    raise _problem(answer, _body(answer, _PROBLEM, where), where)
                name, data = "message", list[str]()
                for line in lines(answer):
                    field, _, value = line.partition(":")
                    if field == "event":
                        name = value.strip()
                    elif field == "data":
                        data.append(value.removeprefix(" "))
                    elif not line:
                        if data:
                            yield name, json.loads("\n".join(data))
                        name, data = "message", []
        except (Unreachable, ValueError) as e:
            raise ServiceAway(f"the connection to the compile service failed: {e}", where=self.address.url) from None

    def _stream(
        self, method: str, path: str, content: bytes | None, media_type: str, wait: float
    ) -> AbstractContextManager[BaseHTTPResponse]:
        headers = {} if content is None else {"Content-Type": media_type}
        return self._transport.ask(method, path, content, headers, min(self._timeout, 10.0), self._timeout + wait)


def _latin(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they travel; `EnvironmentProblem` for a token that cannot."""
    for text in headers.values():
        if not text.isascii() or not text.isprintable():
            raise EnvironmentProblem("the token has invalid characters", where="SHARDC_TOKEN")
    return dict(headers)


def _body(answer: BaseHTTPResponse, limit: int, where: str) -> bytes:
    """What the service sends, if that is no more than ``limit`` bytes."""
    parts, size = list[bytes](), 0
    for part in pieces(answer):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise RunError(f"the answer exceeds the expected {limit} bytes", where=where)
    return b"".join(parts)


def _retry_after(answer: BaseHTTPResponse) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _LONGEST) if text.isascii() and text.isdigit() else 0.0


def _problem(answer: BaseHTTPResponse, data: bytes, where: str) -> ShardcError:
    """The error that a problem document tells; of other answers their status."""
    status = answer.status
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        kind = ServiceAway if status in _LATER else RunError
        return kind(f"the answer is {status} {answer.reason}: is this a compile service?", where=where)
    found = from_problem(told)
    if status == 401:
        fix = "set SHARDC_TOKEN to a valid token, or SHARDC_TOKEN_FILE to a file with one"
        return EnvironmentProblem(found.what, where=found.where, fix=fix)
    if status == 404:
        unknown = Unknown(found.what, where=found.where, fix=found.fix)
        unknown.missing = tuple(str(m) for m in told.get("missing") or ())
        return unknown
    return ServiceAway(found.what, where=found.where, fix=found.fix) if status in _LATER else found
