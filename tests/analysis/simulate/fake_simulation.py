"""A simulation made by hand: a loop over layers with gathers that overlap, some iterations skipped."""

from __future__ import annotations

from shardc.analysis.simulate.simulated_step import LoopInfo, PathStep, SimulatedEvent, SimulatedWork, Skipped
from shardc.analysis.simulate.simulation import Simulation
from shardc.compiler.lower.buffers.memory_timeline import MemoryBlock, MemoryTimeline
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef

MESH = Mesh({"data": 8, "model": 4})
_US = 1e-6
LISTED, TRIPS = 3, 40


def _work(loop: str, evil: str) -> tuple[SimulatedWork, ...]:
    inside = {"count": TRIPS, "loops": (loop,)}
    scope = f"jit(step)/while/body/{evil}layer"
    kernel = {"kind": "kernel", "dtype": "bf16"}
    gather = {"kind": "collective", "opcode": "all-gather", "dtype": "bf16", "algorithm": "ring"}
    return (
        SimulatedWork(
            name="embed.1", opcode="fusion", op_name="jit(step)/embed/gather", source="model.py:10", count=1,
            seconds=80 * _US, read=1 << 26, written=1 << 24, limit="memory", efficiency=0.8, **kernel,
        ),
        SimulatedWork(
            name="all-gather.2", op_name=f"{scope}/w1", source="model.py:21", seconds=60 * _US, axes=("data",),
            group_size=8, payload_bytes=1 << 24, wire_bytes=7 << 21, link_bytes={"infiniband": 7 << 21},
            reason="w1 is sharded over data", value="w1", hidden_seconds=TRIPS * 60 * _US, **gather, **inside,
        ),
        SimulatedWork(
            name="dot.3", opcode="dot", op_name=f"{scope}/mlp/dot_general", source="model.py:22", seconds=100 * _US,
            flops=10**11, read=1 << 22, written=1 << 22, limit="compute", efficiency=0.7, **kernel, **inside,
        ),
        SimulatedWork(
            name="all-reduce.4", op_name=f"{scope}/mlp/dot_general", source="model.py:22", seconds=40 * _US,
            axes=("model",), group_size=4, payload_bytes=1 << 22, wire_bytes=3 << 21, link_bytes={"nvlink": 3 << 21},
            reason="the product is contracted over model", exposed_seconds=TRIPS * 40 * _US,
            **{**gather, "opcode": "all-reduce"}, **inside,
        ),
        SimulatedWork(
            name="loss.5", opcode="fusion", op_name="jit(step)/loss", source="model.py:40", count=1,
            seconds=20 * _US, read=1 << 20, written=4, limit="launch", efficiency=0.1, **kernel,
        ),
    )  # fmt: skip


def fake_simulation(loop: str = "while.7", evil: str = "") -> Simulation:
    """40 iterations of gather (infiniband, one iteration ahead), product, all-reduce (nvlink), 3 of them listed."""
    work = _work(loop, evil)
    events = [
        SimulatedEvent("compute", "kernel", 0, 0.0, 80 * _US),
        SimulatedEvent("infiniband", "transfer", 1, 20 * _US, 60 * _US, ((loop, 0),)),
    ]
    at = 80 * _US
    for n in range(LISTED):
        around = ((loop, n),)
        events += [
            SimulatedEvent("compute", "kernel", 2, at, 100 * _US, around),
            SimulatedEvent("infiniband", "transfer", 1, at + 30 * _US, 60 * _US, around),
            SimulatedEvent("infiniband", "transfer", 1, at + 60 * _US, 60 * _US, around),
            SimulatedEvent("nvlink", "transfer", 3, at + 100 * _US, 40 * _US, around),
            SimulatedEvent("compute", "wait", 3, at + 100 * _US, 40 * _US, around),
        ]
        at += 140 * _US
    left = (TRIPS - LISTED) * 140 * _US
    skipped = Skipped(loop, LISTED, TRIPS - 1, at, left)
    at += left
    events.append(SimulatedEvent("compute", "kernel", 4, at, 20 * _US))
    at += 20 * _US
    curve = [(0.0, 1 << 30), (80 * _US, 3 << 30)]
    curve += [(80 * _US + n * 140 * _US, (3 << 30) + (n + 1) * (1 << 25)) for n in range(TRIPS)]
    curve += [(at - 20 * _US, 2 << 30), (at, 1 << 30)]
    block = MemoryBlock("dot.3", work[2].op_name, "model.py:22", "bf16[4096,4096]", "temporary", 0, 1 << 30, 1, 3)
    memory = MemoryTimeline(
        "step", tuple(w.name for w in work), (block,), (1 << 30, 3 << 30, 4 << 30, 3 << 30, 1 << 30), 1 << 30, 2 << 30
    )
    compute = at - TRIPS * 40 * _US
    return Simulation(
        program="step", machine="h100-dgx", devices=32, mesh={"data": 8, "model": 4},
        mapping={"data": "infiniband", "model": "nvlink"},
        step_seconds=at, compute_seconds=compute, exposed_seconds=TRIPS * 40 * _US,
        overlapped_seconds=TRIPS * 60 * _US, idle_seconds=0.0,
        flops=40 * 10**11, product_flops=40 * 10**11, model_flops=40 * 10**11,
        mfu=0.5, hfu=0.5, peak_flops=989e12, dtype="bf16",
        link_bytes={"infiniband": TRIPS * float(7 << 21), "nvlink": TRIPS * float(3 << 21)},
        peak_bytes=5 << 30, capacity_bytes=80 << 30, work=work, events=tuple(events), skipped=(skipped,),
        critical_path=(PathStep(2, "kernel", TRIPS * 100 * _US, TRIPS, (loop,)),), memory=memory,
        memory_curve=tuple(curve), loops=(LoopInfo(loop, "jit(step)/while", "model.py:20", TRIPS, True),),
        groups=(None, _groups("data"), None, _groups("model"), None),
    )  # fmt: skip


def _groups(axis: str) -> AxisGroups:
    return AxisGroups(MESH, (AxisRef(axis),))
