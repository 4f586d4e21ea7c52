"""Errors over HTTP: problem documents (RFC 9457) with the fields of shardc's own errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from shardc.hlo.errors import EnvironmentProblem, InputError, RunError, ShardcError
from shardc.launcher.executors.problems import to_problem
from shardc.service.scheduler.refusals import Closing

__all__ = ["PROBLEM_JSON", "Answers", "Refusal", "handle_errors", "problem_response", "responses"]

#: A route's answers by status, as FastAPI takes them for the description.
Answers = dict[int | str, dict[str, Any]]

PROBLEM_JSON = "application/problem+json"

#: What the statuses that this interface answers with mean, for its description.
_MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        400: "The request is not valid HTTP or JSON.",
        401: "The request has no token, or an unknown one.",
        403: "The request comes from a page of another origin, or names another host.",
        404: "This server does not have it.",
        405: "The path does not accept this method.",
        408: "The rest of the request did not arrive in time.",
        409: "The job has ended already.",
        413: "The request exceeds this server's size limit.",
        415: "The server does not accept this type of body.",
        422: "The request is well-formed, but a value in it is invalid.",
        429: "The queue is full.",
        500: "The server has an internal error.",
        503: "The server is shutting down, or busy.",
        507: "The server's disk is full.",
    }
)


class Refusal(Exception):
    """An answer other than the one asked for: an error of the family, with the HTTP status that fits it, headers
    and members of the problem beside."""

    def __init__(
        self, status: int, error: ShardcError, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(error.what)
        self.status, self.error, self.headers, self.members = status, error, dict(headers or {}), members

    def response(self) -> Response:
        return problem_response(self.error, self.status, self.headers, **self.members)


def problem_response(
    error: ShardcError, status: int, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """The problem document of ``error``."""
    content = json.dumps(to_problem(error, status) | members, separators=(",", ":"))
    return Response(content, status, dict(headers or {}), PROBLEM_JSON)


def responses(*statuses: int) -> Answers:
    """The problems among a route's answers, for its description. What every route may answer is among them."""
    schema = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    every = sorted({400, 401, 403, 422, 500, 503, *statuses})
    return {status: {"description": _MEANINGS[status], "content": schema} for status in every}


def handle_errors(app: FastAPI) -> None:
    """Have ``app`` answer every error as a problem."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(ShardcError, _ours)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _ours(request: Request, error: Exception) -> Response:
    """Bad input is the client's fault; a lack of the machine or a failed run the server's."""
    assert isinstance(error, ShardcError)
    if isinstance(error, Closing):
        return problem_response(error, 503, {"Retry-After": "5"})
    return problem_response(error, {EnvironmentProblem: 503, RunError: 500}.get(type(error), 422))


async def _not_valid(request: Request, error: Exception) -> Response:
    """The first thing that does not fit the description, with its place."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    status = 400 if first["type"] == "json_invalid" else 422
    what = "the body is not JSON" if status == 400 else str(first["msg"])
    found = InputError(what, where=".".join(place), fix="see the fields of this path at /docs")
    return problem_response(found, status)


async def _http(request: Request, error: Exception) -> Response:
    """What the framework answers by itself: unknown paths, other methods, bodies that cannot be read."""
    assert isinstance(error, HTTPException)
    status, headers = error.status_code, dict(error.headers or {})
    what, fix = error.detail or HTTPStatus(status).phrase, None
    if status == 404:
        what, fix = "there is nothing at this path", "see /docs for all paths"
    elif status == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
        what, fix = "this path has no such method", f"use {headers['Allow']}"
    found = InputError(what, where=f"{request.method} {request.url.path}"[:200], fix=fix)
    return problem_response(found, status, headers)


def _methods(request: Request) -> set[str]:
    """What the path has: several routes may have one path."""
    routes = (r for r in request.app.routes if isinstance(r, Route))
    return {m for r in routes if r.matches(request.scope)[0] is not Match.NONE for m in r.methods or ()}


async def _bug(request: Request, error: Exception) -> Response:
    logging.getLogger("shardc.serve").error("%s %s", request.method, request.url.path, exc_info=error)
    found = RunError("the service failed unexpectedly", fix="see the server's log, and please report it")
    return problem_response(found, 500)
