"""HTTP to one server: connections that are kept open, proxies of the environment, and failures as text."""

from __future__ import annotations

import os
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from shardc.hlo.errors import EnvironmentProblem

if TYPE_CHECKING:
    from urllib3 import PoolManager
    from urllib3.response import BaseHTTPResponse

__all__ = ["HttpTransport", "Unreachable", "lines", "pieces"]

#: Connections that threads may keep at a time; further ones are closed after their answer.
_KEPT = 32
#: Bytes that are read at a time.
_PIECE = 1 << 18


class Unreachable(Exception):
    """No answer, or half of one; says why."""


class HttpTransport:
    """Asks ``url`` with ``headers``; ``direct``: past all proxies. Threads may share it.

    To be closed; the next question opens it again. Questions raise `EnvironmentProblem` where urllib3 is missing.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, direct: bool) -> None:
        self._url, self._headers, self._direct = url, dict(headers), direct
        self._opened: PoolManager | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        """End the connections, if there are any."""
        if self._opened is not None:
            self._opened.clear()
            self._opened = None

    @contextmanager
    def ask(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], connect: float, silence: float
    ) -> Iterator[BaseHTTPResponse]:
        """The answer, within the block; `pieces` and `lines` read it. Connecting, and each silence, may take so many
        seconds. Raises `Unreachable`, also while it is read."""
        urllib3 = _urllib3()
        try:
            answer = self._open(urllib3).request(
                method,
                self._url + path,
                body=content,
                headers={**self._headers, **headers},
                timeout=urllib3.Timeout(connect=connect, read=silence),
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as e:
            raise Unreachable(_reason(e)) from None
        try:
            yield answer
        except urllib3.exceptions.HTTPError as e:
            raise Unreachable(_reason(e)) from None
        finally:
            if not answer.closed:
                answer.close()  # what is left would be taken for the next answer

    def _open(self, urllib3: ModuleType) -> PoolManager:
        with self._opening:
            if self._opened is None:
                self._opened = _manager(urllib3, self._url, "" if self._direct else _proxy(self._url))
            return self._opened


def pieces(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """The body as it comes."""
    while data := answer.read1(_PIECE):
        yield data


def lines(answer: BaseHTTPResponse) -> Iterator[str]:
    """The body's lines as they come, without their ends."""
    rest = b""
    for piece in pieces(answer):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode()


def _urllib3() -> ModuleType:
    try:
        import urllib3
    except ImportError as e:
        raise EnvironmentProblem(
            f"a compile service needs a package: {e}", fix="install the extra: pip install 'shardc[client]'"
        ) from None
    return urllib3


def _proxy(url: str) -> str:
    """The proxy that the environment names for ``url``; empty: none."""
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return ""
    named = urllib.request.getproxies()
    found = named.get(parts.scheme) or named.get("all") or ""
    return found if "://" in found or not found else f"http://{found}"


def _manager(urllib3: ModuleType, url: str, proxy: str) -> PoolManager:
    parts = urllib.parse.urlsplit(proxy)
    user = urllib.parse.unquote(parts.netloc.rpartition("@")[0])
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        options = {"maxsize": _KEPT, "ssl_context": _certificates() if url.startswith("https:") else None}
        if not proxy:
            direct: PoolManager = urllib3.PoolManager(**options)
            return direct
        headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
        through: PoolManager = urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as e:
        why = f"certificates: {_reason(e)}" if isinstance(e, OSError) else f"{shown!r} cannot be used as a proxy"
        raise EnvironmentProblem(
            f"the compile service cannot be reached with the settings of the environment: {why}",
            where=url,
            fix="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from None
    return through


def _certificates() -> ssl.SSLContext:
    """What vouches for servers: the system's certificates, or those that the environment names, which must be there."""
    named = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=named[0] or None, capath=named[1] or None)


def _reason(error: BaseException) -> str:
    """What the system, or else the innermost error, says: the outer ones tell of connections and their addresses."""
    inner = error.__cause__ or next((a for a in reversed(error.args) if isinstance(a, BaseException)), None)
    if inner is not None:
        return _reason(inner)
    said = error.strerror if isinstance(error, OSError) else None
    return str(said or error) or type(error).__name__
