"""Routes of jobs: submit an order, read, wait for, follow and cancel a job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from shardc.hlo.codec.plain import read_json
from shardc.hlo.errors import InputError
from shardc.service.api.answers import JobAnswer, JobsAnswer, job_answer
from shardc.service.api.bodies import body_of, content_type
from shardc.service.api.context import ApiContext, InjectedContext
from shardc.service.api.job_updates import follow
from shardc.service.api.problems import Answers, Refusal, responses
from shardc.service.jobs import Job
from shardc.service.orders import order_of
from shardc.service.scheduler.refusals import Closing, MissingPrograms, NoSuchJob, QueueFull

__all__ = ["add_job_routes"]

_Id = Annotated[
    str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The id that the job got when it was submitted.")
]
_Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for its end before the answer.")]
_Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of jobs to return.")]

#: What the body of an order is; `shardc.service.api.description` has the schema.
_EXAMPLE = {"kind": "simulate", "program": "0" * 64, "mesh": {"data": 8}, "machine": "h100-dgx:8"}
_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}, "example": _EXAMPLE}}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}


def add_job_routes(app: FastAPI) -> None:
    """``/v1/jobs``."""
    path = "/v1/jobs/{job_id}"
    there: Answers = {200: {"model": JobAnswer, "description": "The result existed already."}}
    app.add_api_route(
        "/v1/jobs",
        submit,
        methods=["POST"],
        status_code=202,
        response_model=JobAnswer,
        responses=there | responses(404, 408, 413, 415, 429),
        openapi_extra=_BODY,
    )
    app.add_api_route("/v1/jobs", jobs, methods=["GET"], response_model=JobsAnswer, responses=responses())
    app.add_api_route(path, job, methods=["GET"], response_model=JobAnswer, responses=responses(404))
    app.add_api_route(path, cancel, methods=["DELETE"], response_model=JobAnswer, responses=responses(404))
    app.add_api_route(
        f"{path}/events",
        events,
        methods=["GET"],
        response_class=EventSourceResponse,
        responses=responses(404),
    )


async def submit(request: Request, context: InjectedContext) -> Response:
    """Submit an order. Equal orders are carried out once, for any number of clients."""
    settings = context.settings
    content_type(request, "application/json")
    async with body_of(request, settings.max_order, settings.stall_seconds, context.body_budget) as body:
        found = await run_in_threadpool(_submit, context, body)
    return JSONResponse(job_answer(found), 200 if found.state == "done" else 202, {"Location": f"/v1/jobs/{found.id}"})


def _submit(context: ApiContext, body: bytes) -> Job:
    if context.ending.draining:
        raise Closing
    try:
        data = read_json(body, "order")
    except InputError as error:
        raise Refusal(400, error) from None
    order = order_of(data)
    try:
        return context.scheduler.submit(order)
    except MissingPrograms as error:
        raise Refusal(404, error, missing=list(error.missing)) from None
    except QueueFull as error:
        raise Refusal(429, error, {"Retry-After": str(error.retry_after)}) from None


async def jobs(context: InjectedContext, limit: _Limit = 100) -> Response:
    """The jobs that the service remembers, newest first."""
    return await run_in_threadpool(
        lambda: JSONResponse({"jobs": [job_answer(j) for j in context.scheduler.jobs(limit)]})
    )


async def _find_job(job_id: _Id, context: InjectedContext) -> Job:
    found = await run_in_threadpool(context.scheduler.job, job_id)
    if found is None:
        raise Refusal(404, NoSuchJob(job_id))
    return found


_FoundJob = Annotated[Job, Depends(_find_job)]


async def job(found: _FoundJob, context: InjectedContext, wait: _Wait = 0.0) -> Response:
    """Return a job. With ``wait`` the answer comes when the job has ended, or after that many seconds."""
    if wait and not found.over:
        end = time.monotonic() + wait
        async with follow(context, found.id) as updates:
            while not found.over and (changed := await updates.next_change(end - time.monotonic())) is not None:
                found = changed
    return JSONResponse(job_answer(found))


async def events(found: _FoundJob, context: InjectedContext) -> AsyncIterator[ServerSentEvent]:
    """Send an event ``job`` with the job at each change, until the job has ended."""
    with context.metrics.streams.track_inprogress():
        async with follow(context, found.id) as updates:
            while (changed := await updates.next_change()) is not None:
                yield ServerSentEvent(data=job_answer(changed), event="job")
                if changed.over:
                    return


async def cancel(found: _FoundJob, context: InjectedContext) -> Response:
    """Cancel a job. Its work stops unless other jobs wait for it. A job that has ended does not change."""
    ended = await run_in_threadpool(context.scheduler.cancel, found.id)
    return JSONResponse(job_answer(ended or found))
