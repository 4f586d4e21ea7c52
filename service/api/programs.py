"""Routes of programs: uploaded once, then named by the SHA-256 of their content."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from shardc.frontends.load import content_kind
from shardc.hlo.errors import EnvironmentProblem, InputError, ParseError
from shardc.service.api.answers import ProgramAnswer
from shardc.service.api.bodies import body_of, content_type
from shardc.service.api.context import ApiContext, InjectedContext
from shardc.service.api.problems import Refusal, responses

__all__ = ["DIGEST", "Digest", "add_program_routes"]

#: A SHA-256 in hexadecimal, the only names by which things are asked for.
DIGEST = "^[0-9a-f]{64}$"
Digest = Annotated[str, Path(pattern=DIGEST, description="A SHA-256 in hexadecimal.")]

_TYPES = ("application/octet-stream", "text/plain")
_BODY = {
    "requestBody": {
        "required": True,
        "description": "HLO text, MLIR text or bytecode, or a serialized jax.export.Exported.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}},
            "text/plain": {"schema": {"type": "string", "minLength": 1}},
        },
    }
}


def add_program_routes(app: FastAPI) -> None:
    """``/v1/programs``."""
    path = "/v1/programs/{program}"
    app.add_api_route(
        "/v1/programs",
        upload,
        methods=["POST"],
        status_code=201,
        response_model=ProgramAnswer,
        responses=responses(408, 413, 415, 507),
        openapi_extra=_BODY,
    )
    app.add_api_route(path, describe, methods=["GET"], response_model=ProgramAnswer, responses=responses(404))
    app.add_api_route(path, is_there, methods=["HEAD"], response_class=Response, responses=responses(404))


async def upload(request: Request, context: InjectedContext) -> Response:
    """Keep a program; it is named by the SHA-256 of its bytes, and uploading it again changes nothing."""
    settings = context.settings
    content_type(request, *_TYPES)
    async with body_of(request, settings.max_upload, settings.stall_seconds, context.body_budget) as data:
        program, kind = await run_in_threadpool(_keep, context, data)
        return JSONResponse({"program": program, "bytes": len(data), "kind": kind}, 201)


def _keep(context: ApiContext, data: bytes) -> tuple[str, str]:
    """The name of a program that is stored now, and what it is."""
    if not data[:4096].strip() and not data.strip():
        raise ParseError("the program is empty", where="body")
    kind = content_kind(data, "body")
    try:
        return context.store.put_program(data, {"kind": kind}), kind
    except EnvironmentProblem as error:
        raise Refusal(507, error) from None


async def describe(program: Digest, context: InjectedContext) -> Response:
    """Size and kind of an uploaded program."""
    entry = await run_in_threadpool(context.store.program_entry, program)
    if entry is None:
        raise _unknown(program)
    return JSONResponse({"program": program, "bytes": entry.artifacts[0].bytes, "kind": entry.facts["kind"]})


async def is_there(program: Digest, context: InjectedContext) -> Response:
    """Whether a program has been uploaded."""
    if not await run_in_threadpool(context.store.has_program, program):
        raise _unknown(program)
    return Response()


def _unknown(program: str) -> Refusal:
    error = InputError("the service does not have this program", where=program, fix="upload it: POST /v1/programs")
    return Refusal(404, error, missing=[program])
