"""Routes of results: manifests and files by key."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated

from fastapi import FastAPI, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse

from shardc.hlo.errors import InputError
from shardc.service.api.answers import EntryAnswer, entry_answer
from shardc.service.api.context import ApiContext, InjectedContext
from shardc.service.api.problems import Answers, Refusal, responses
from shardc.service.api.programs import Digest
from shardc.service.api.tags import is_known
from shardc.service.jobs import MANIFEST, Artifact, StoreEntry
from shardc.service.store.store import NotStored

__all__ = ["add_artifact_routes"]

_Name = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_.-]{0,63}$", description="The file's name in the manifest.")]

#: A page with scripts of its own, which may run, but neither ask this service nor anybody else.
_PAGE = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)
_PART = 1 << 18
#: Characters of the largest manifest that goes into a header; clients ask for others.
_HEADER = 8192


def add_artifact_routes(app: FastAPI) -> None:
    """``/v1/artifacts``."""
    app.add_api_route(
        "/v1/artifacts/{key}",
        manifest,
        methods=["GET"],
        response_model=EntryAnswer,
        responses=responses(404),
    )
    schema = {"schema": {"type": "string", "format": "binary"}}
    types = ("application/octet-stream", "application/json", "text/plain", "text/html")
    files: Answers = {
        200: {
            "description": "The file's bytes.",
            "content": dict.fromkeys(types, schema),
            "headers": {MANIFEST: {"description": "The manifest, JSON in base64.", "schema": {"type": "string"}}},
        },
        304: {"description": "The file has not changed."},
    }
    app.add_api_route(
        "/v1/artifacts/{key}/{name}",
        file,
        methods=["GET"],
        response_class=Response,
        responses=files | responses(404),
    )


async def manifest(key: Digest, context: InjectedContext) -> Response:
    """The files that an order made, with their checksums, signed."""
    entry = await run_in_threadpool(_entry, context, key)
    return JSONResponse(entry_answer(entry))


async def file(key: Digest, name: _Name, request: Request, context: InjectedContext) -> Response:
    """A file of a result. It never changes under its key, so clients may cache it forever."""
    found = context.store.find_cached(key, name)
    if found is None:
        found = await run_in_threadpool(_read, context, key, name, request)
    entry, artifact, data = found
    headers = {
        "ETag": f'"{artifact.sha256}"',
        "Cache-Control": "private, max-age=31536000, immutable",
        "Vary": "Authorization",
    }
    if data is None or is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if artifact.media_type.startswith("text/html"):
        headers["Content-Security-Policy"] = _PAGE
    manifest = base64.b64encode(json.dumps(entry_answer(entry)).encode()).decode("ascii")
    if len(manifest) <= _HEADER:
        headers[MANIFEST] = manifest
    headers["Content-Type"] = artifact.media_type
    headers["Content-Length"] = str(len(data))
    if len(data) <= _PART:
        return Response(data, headers=headers)
    return StreamingResponse(_parts(data), headers=headers)


def _parts(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(data), _PART):
        yield view[start : start + _PART]


def _entry(context: ApiContext, key: str) -> StoreEntry:
    entry = context.store.find(key)
    if entry is None:
        raise _unknown(key)
    return entry


def _read(context: ApiContext, key: str, name: str, request: Request) -> tuple[StoreEntry, Artifact, bytes | None]:
    """The manifest, a file's line in it, and its bytes; None for those that whoever asks has already."""
    with context.store.lease(key):
        entry = _entry(context, key)
        artifact = next((a for a in entry.artifacts if a.name == name), None)
        if artifact is None:
            raise _unknown(f"{key}/{name}")
        if is_known(request, f'"{artifact.sha256}"'):
            return entry, artifact, None
        try:
            return entry, artifact, context.store.read(key, name)
        except NotStored:  # found to be damaged, and removed
            raise _unknown(f"{key}/{name}") from None


def _unknown(what: str) -> Refusal:
    return Refusal(404, InputError("there is no such artifact", where=what, fix="submit the order again"))
