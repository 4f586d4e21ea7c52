"""Static pages for browsers: the explorer, and the description of the interface."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Request
from fastapi import Path as InPath
from fastapi.responses import Response

from shardc.hlo.errors import InputError
from shardc.service.api.problems import Refusal
from shardc.service.api.tags import is_known
from shardc.service.explorer.files import files, policy

__all__ = ["add_page_routes"]

_Name = Annotated[str, InPath(max_length=100)]

#: Swagger UI draws with styles of elements and pictures in its style sheet.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def add_page_routes(app: FastAPI) -> None:
    """``/`` and ``/explorer``, ``/docs`` and what belongs to it."""
    for path, folder, shown, allowed in (
        ("/", "/explorer", files(), policy()),
        ("/docs", "/docs", _description(), _POLICY),
    ):
        page = _Folder(shown, allowed)
        app.add_api_route(path, page.index, methods=["GET", "HEAD"], include_in_schema=False)
        app.add_api_route(folder + "/{name}", page.file, methods=["GET", "HEAD"], include_in_schema=False)


class _Folder:
    """Files by name, each with its media type; one of them is the page itself."""

    def __init__(self, held: Mapping[str, tuple[str, bytes]], allowed: str) -> None:
        self._held = {name: (kind, data, f'"{sha256(data).hexdigest()}"') for name, (kind, data) in held.items()}
        self._policy = allowed

    async def index(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    async def file(self, name: _Name, request: Request) -> Response:
        if name not in self._held:
            raise Refusal(404, InputError("there is no such file", where=request.url.path[:200]))
        return self._answer(request, name)

    def _answer(self, request: Request, name: str) -> Response:
        kind, data, tag = self._held[name]
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": self._policy}
        if is_known(request, tag):
            return Response(status_code=304, headers=headers)
        return Response(data, headers={**headers, "Content-Type": kind})


def _description() -> dict[str, tuple[str, bytes]]:
    """The page of the interface's description, drawn by Swagger UI."""
    from swagger_ui_bundle import swagger_ui_path

    ours, theirs = Path(__file__).parent, Path(str(swagger_ui_path))
    return {
        "index.html": ("text/html; charset=utf-8", (ours / "docs.html").read_bytes()),
        "docs.css": ("text/css; charset=utf-8", (ours / "docs.css").read_bytes()),
        "docs.js": ("text/javascript; charset=utf-8", (ours / "docs.js").read_bytes()),
        "swagger-ui.css": ("text/css; charset=utf-8", (theirs / "swagger-ui.css").read_bytes()),
        "swagger-ui-bundle.js": ("text/javascript; charset=utf-8", (theirs / "swagger-ui-bundle.js").read_bytes()),
        "favicon.png": ("image/png", (theirs / "favicon-32x32.png").read_bytes()),
    }
