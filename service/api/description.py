"""The description of the interface (OpenAPI): what FastAPI finds in the routes, the forms of orders and errors, and
who is asked for a token."""

from __future__ import annotations

from typing import Annotated, Any, Union

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import Field, TypeAdapter

from shardc.hlo.version import VERSION
from shardc.service.api.answers import Problem
from shardc.service.orders import ORDERS

__all__ = ["describe"]

_REFS = "#/components/schemas/{model}"
_GROUPS = ("programs", "jobs", "artifacts")
_ABOUT = """Programs are uploaded once and named by their SHA-256. An order names a program and the result to
make from it. Submitting an order creates a job, which clients can wait for, follow and cancel. Results are stored by
key, with checksums and a signature. Every error is a problem document with the fields of shardc's errors."""


def describe(app: FastAPI, *, tokens: bool) -> dict[str, Any]:
    """The OpenAPI document of ``app``, whose requests need a token, or not."""
    found = get_openapi(title="shardc", version=VERSION, description=_ABOUT, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_orders())
    schemas["Problem"] = TypeAdapter(Problem).json_schema(ref_template=_REFS)
    for path, operations in found["paths"].items():
        for operation in operations.values():
            operation["tags"] = [next((group for group in _GROUPS if path.startswith(f"/v1/{group}")), "service")]
            operation["summary"] = operation["description"].partition(".")[0].partition(";")[0]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    if tokens:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in found["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path == "/healthz" else [{"token": []}]
    _link(found["paths"])
    return found


def _orders() -> dict[str, Any]:
    """The schemas of all orders, one of which ``Order`` is."""
    union: Any = Annotated[Union[tuple(ORDERS.values())], Field(discriminator="kind")]  # noqa: UP007
    schema = TypeAdapter(union).json_schema(ref_template=_REFS)
    schemas: dict[str, Any] = schema.pop("$defs")
    for order in ORDERS.values():
        schemas[order.__name__]["required"].append("kind")  # it has a default in Python, but decides which one it is
    return {**schemas, "Order": schema}


def _link(paths: dict[str, Any]) -> None:
    """Which answers name what other paths ask for."""
    job = {"job_id": "$response.body#/id"}
    links = {
        name: {"operationId": paths[path][method]["operationId"], "parameters": parameters}
        for name, path, method, parameters in (
            ("job", "/v1/jobs/{job_id}", "get", job),
            ("cancel", "/v1/jobs/{job_id}", "delete", job),
            ("artifacts", "/v1/artifacts/{key}", "get", {"key": "$response.body#/key"}),
        )
    }
    for status in ("200", "202"):
        paths["/v1/jobs"]["post"]["responses"][status]["links"] = links
    uploaded = paths["/v1/programs"]["post"]["responses"]["201"]
    program = paths["/v1/programs/{program}"]["get"]["operationId"]
    uploaded["links"] = {"program": {"operationId": program, "parameters": {"program": "$response.body#/program"}}}
