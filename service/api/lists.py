"""Routes of what the service has: machines, targets, its key, and itself."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from shardc.hlo.version import VERSION
from shardc.service.api.answers import (
    CpuAnswer,
    HealthAnswer,
    InfoAnswer,
    KeyAnswer,
    LevelAnswer,
    LimitsAnswer,
    MachineAnswer,
    MachinesAnswer,
    NamedCpu,
    TargetsAnswer,
)
from shardc.service.api.context import InjectedContext
from shardc.service.api.metrics import METRICS_TYPE
from shardc.service.api.problems import Answers, responses

__all__ = ["add_list_routes"]


def add_list_routes(app: FastAPI) -> None:
    """``/v1/machines``, ``/v1/targets``, ``/v1/key``, ``/v1/info``, ``/healthz``, ``/metrics``."""
    for path, route, model in (
        ("/v1/machines", machines, MachinesAnswer),
        ("/v1/targets", targets, TargetsAnswer),
        ("/v1/key", key, KeyAnswer),
        ("/v1/info", info, InfoAnswer),
        ("/healthz", health, HealthAnswer),
    ):
        app.add_api_route(path, route, methods=["GET"], response_model=model, responses=responses())
    app.add_api_route("/healthz", health, methods=["HEAD"], include_in_schema=False)  # as balancers ask
    text: Answers = {
        200: {
            "description": "Metrics in the text format of Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    }
    app.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response, responses=text | responses())


async def machines() -> Response:
    """Machines that simulations know by name."""
    return JSONResponse(asdict(await run_in_threadpool(_machines)))


async def targets() -> Response:
    """Processors and GPUs that programs can be compiled for."""
    return JSONResponse(asdict(await run_in_threadpool(_targets)))


async def key(context: InjectedContext) -> Response:
    """The key that verifies the signatures of entries. On an untrusted network, give it to clients in another way."""
    return JSONResponse({"key": context.settings.key.hex()})


async def info(context: InjectedContext) -> Response:
    """Version, workers, limits."""
    from shardc.compiler.cache.cache import content_key

    settings = context.settings
    limits = LimitsAnswer(
        settings.max_upload, settings.max_order, settings.limits.seconds, settings.limits.memory_bytes, settings.queue
    )
    cpu = await run_in_threadpool(_cpu)
    build = (await run_in_threadpool(content_key, "build"))[:16]
    found = InfoAnswer(VERSION, build, settings.executor, settings.workers, limits, cpu, context.ending.draining)
    return JSONResponse(asdict(found))


async def health(context: InjectedContext) -> Response:
    """Health check: whether the service runs."""
    return JSONResponse({"status": "draining" if context.ending.draining else "ok"})


async def metrics(context: InjectedContext) -> Response:
    """Metrics for Prometheus."""
    return Response(await run_in_threadpool(context.metrics.text), headers={"Content-Type": METRICS_TYPE})


@cache
def _machines() -> MachinesAnswer:
    from shardc.costs.machines.machine import load_machine, machine_names

    found = []
    for machine in map(load_machine, machine_names()):
        device = machine.device
        about = {
            "kind": device.kind,
            "memory_bytes": device.memory_bytes,
            "memory_bandwidth": device.memory_bandwidth,
            "flops": dict(device.flops),
        }
        levels = [LevelAnswer(v.name, v.kind, v.size, v.bandwidth, v.latency) for v in machine.levels]
        found.append(MachineAnswer(machine.name, machine.title, about, levels))
    return MachinesAnswer(found)


@cache
def _targets() -> TargetsAnswer:
    from shardc.native.gpu.target import GPU_ARCHS
    from shardc.native.llvm.target import CPUS, named_target

    gpus = [f"cuda:{arch}" for arch in GPU_ARCHS if arch.startswith("sm_")]
    cpus = [NamedCpu(name, CpuAnswer(**asdict(named_target(name)))) for name in CPUS]
    return TargetsAnswer(["cpu", "cuda-emulated", *gpus], cpus)


@cache
def _cpu() -> CpuAnswer:
    from shardc.native.llvm.target import host_target

    return CpuAnswer(**asdict(host_target()))
