"""Checks of every request: counts it, and refuses it from a wrong place or without a token."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardc.hlo.errors import InputError
from shardc.service.api.context import ApiSettings
from shardc.service.api.metrics import Metrics
from shardc.service.api.problems import Refusal

__all__ = ["Guard", "RequestMonitor", "is_loopback"]

#: Static pages and the sign of life: they tell nothing of anybody's work.
_OPEN = ("/", "/healthz", "/docs")
_OPEN_FOLDERS = ("/explorer/", "/docs/")

#: For every answer that says nothing else itself.
_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Frame-Options": "SAMEORIGIN",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
    }
)


class RequestMonitor:
    """Outermost: counts requests by route and status, gives answers the headers that browsers protect users by."""

    def __init__(self, app: ASGIApp, metrics: Metrics, settings: ApiSettings) -> None:
        self._app, self._metrics, self._log = app, metrics, settings.log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                self._count(scope, message["status"], time.perf_counter() - start)
            await send(message)

        await self._app(scope, receive, counted)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.count(route, method, status, seconds)
        if self._log is not None:
            path = scope.get("raw_path", b"").decode("ascii", "replace")[:200]
            asked = f" {scope['token_name']}" if "token_name" in scope else ""
            self._log(f"{method} {path!r} {status} {1e3 * seconds:.1f} ms{asked}")


_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})


class Guard:
    """Lets requests in. With tokens: those that have one. Without: those that were sent to a loopback name, by no
    page of another place (such a page may know a name that leads here; its requests tell where it is from)."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app, self._tokens = app, settings.tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Refusal as refusal:
                await refusal.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._tokens is None:
            _check_place(headers)
            return
        path = scope["path"]
        if path in _OPEN or path.startswith(_OPEN_FOLDERS):
            return
        given = headers.getlist("authorization")
        kind, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            fix = "send the header Authorization: Bearer TOKEN (SHARDC_TOKEN, or the file of SHARDC_TOKEN_FILE)"
            raise Refusal(401, InputError("the service requires a token", fix=fix), _challenge())
        name = self._tokens.find(token.strip())
        if name is None:
            error = InputError("the service does not know this token", fix="ask its operator for a valid token")
            raise Refusal(401, error, _challenge(', error="invalid_token"'))
        scope["token_name"] = name


def _challenge(more: str = "") -> dict[str, str]:
    return {"WWW-Authenticate": f'Bearer realm="shardc"{more}'}


def _check_place(headers: Headers) -> None:
    host = headers.get("host", "")
    if not is_loopback(_host_name(host)):
        fix = "use localhost or 127.0.0.1, or start the server with --token-file"
        raise Refusal(403, InputError(f"the request is for {host[:100]!r}", where="Host", fix=fix))
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        fix = "use this server's own page, or start the server with --token-file"
        raise Refusal(403, InputError(f"the request is from a page of {origin[:100]!r}", where="Origin", fix=fix))


def _host_name(host: str) -> str:
    """A Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Only this computer is called so."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
