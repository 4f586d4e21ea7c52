"""The application: its routes, the guards around them, and the form of errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from shardc.service.api.artifacts import add_artifact_routes
from shardc.service.api.bodies import BodyBudget
from shardc.service.api.context import ApiContext, ApiSettings, Ending
from shardc.service.api.description import describe
from shardc.service.api.guard import Guard, RequestMonitor
from shardc.service.api.jobs import add_job_routes
from shardc.service.api.lists import add_list_routes
from shardc.service.api.metrics import Metrics
from shardc.service.api.pages import add_page_routes
from shardc.service.api.problems import handle_errors
from shardc.service.api.programs import add_program_routes

if TYPE_CHECKING:
    from shardc.service.scheduler.scheduler import Scheduler
    from shardc.service.store.store import Store

__all__ = ["create_app"]


def create_app(scheduler: Scheduler, store: Store, settings: ApiSettings, ending: Ending | None = None) -> FastAPI:
    """The service's HTTP interface over ``scheduler`` and ``store``; ``ending`` is how its end is said.

    Example: ``uvicorn.run(create_app(scheduler, store, ApiSettings()))``.
    """
    app = FastAPI(title="shardc", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    metrics = Metrics(scheduler, store)
    app.state.context = ApiContext(
        scheduler, store, settings, metrics, ending or Ending(), BodyBudget(settings.uploads * settings.max_upload)
    )
    for add in (add_program_routes, add_job_routes, add_artifact_routes, add_list_routes, add_page_routes):
        add(app)

    @cache
    def description() -> bytes:
        return bytes(JSONResponse(describe(app, tokens=settings.tokens is not None)).body)

    async def openapi() -> Response:
        return Response(description(), media_type="application/json")

    app.add_api_route("/v1/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    handle_errors(app)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(RequestMonitor, metrics=metrics, settings=settings)  # the last one added is the outermost
    return app
