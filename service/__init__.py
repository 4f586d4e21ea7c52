"""The compile service: orders come in over HTTP, workers carry each out once, and a store keeps results by content.

Start with `serve` and `orders`; `client` is the other side.

Users need the names below, which are imported when they are first used. Examples continue these lines, for the service
that ``SHARDC_SERVER`` names:

>>> import shardc
>>> from shardc.service import AutoOrder, CompileOrder, Cpu, ExplainOrder, InspectOrder, PartitionOrder, ReportOrder
>>> from shardc.service import Settings, SimulateOrder, SweepOrder, SweepSet
>>> service = shardc.connect()
>>> text = open("step.mlir", "rb").read()
>>> digest = service.upload(text)
>>> job = service.wait(service.submit(SimulateOrder(program=digest, machine="h100-dgx")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardc.service.client.client import Client as Client
    from shardc.service.client.requests import Result as Result
    from shardc.service.jobs import Artifact as Artifact
    from shardc.service.jobs import Job as Job
    from shardc.service.jobs import StoreEntry as StoreEntry
    from shardc.service.orders import AutoOrder as AutoOrder
    from shardc.service.orders import CompileOrder as CompileOrder
    from shardc.service.orders import Cpu as Cpu
    from shardc.service.orders import ExplainOrder as ExplainOrder
    from shardc.service.orders import InspectOrder as InspectOrder
    from shardc.service.orders import Order as Order
    from shardc.service.orders import PartitionOrder as PartitionOrder
    from shardc.service.orders import ReportOrder as ReportOrder
    from shardc.service.orders import Settings as Settings
    from shardc.service.orders import SimulateOrder as SimulateOrder
    from shardc.service.orders import SweepOrder as SweepOrder
    from shardc.service.orders import SweepSet as SweepSet

_MODULES = {
    "Artifact": "jobs",
    "AutoOrder": "orders",
    "Client": "client.client",
    "CompileOrder": "orders",
    "Cpu": "orders",
    "ExplainOrder": "orders",
    "InspectOrder": "orders",
    "Job": "jobs",
    "Order": "orders",
    "PartitionOrder": "orders",
    "ReportOrder": "orders",
    "Result": "client.requests",
    "Settings": "orders",
    "SimulateOrder": "orders",
    "StoreEntry": "jobs",
    "SweepOrder": "orders",
    "SweepSet": "orders",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'shardc.service' has no attribute {name!r}")
    value = getattr(import_module(f"shardc.service.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
