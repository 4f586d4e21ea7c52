"""The parts that orders of all kinds share: programs as the order wants them, timed stages, and files as bytes.

Nothing that an order names is opened: programs are bytes that came along, machines are those that come with shardc or
a text. What must be a file (a machine's description, measured times) is written into a folder of this order's own,
whose place errors do not tell.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardc.analysis.device_memory import with_memory
from shardc.analysis.simulate.judge_of import judge_of
from shardc.hlo.codec import plain
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.ir.mesh import MOST_DEVICES, Mesh
from shardc.hlo.units import count_text
from shardc.launcher.executors.tasks import Progress
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram
from shardc.service.orders import Order
from shardc.service.results import StagesFacts
from shardc.service.workers.pieces import OrderPart
from shardc.sharding.notations.new_axes import warn_of_new_axes

__all__ = ["Workbench", "mesh_of"]


def mesh_of(axes: Mapping[str, int], where: str = "order.mesh") -> Mesh | None:
    """The mesh of an order, None where it names no axes. Raises `InputError` for one that is too large."""
    size = math.prod(axes.values())
    if size > MOST_DEVICES:
        raise InputError(f"the mesh has {count_text(size, 'device')}", where=where, fix=f"use at most {MOST_DEVICES:,}")
    return Mesh(dict(axes)) if axes else None


@dataclass
class Workbench:
    """An ``order`` that is being carried out, with the ``programs`` that it names, by digest. ``folder`` is empty and
    this order's own. ``progress`` hears of each stage; ``seconds`` are what they took. ``part`` is what of the order is
    to be done."""

    order: Order
    programs: Mapping[str, bytes]
    folder: Path
    progress: Progress
    part: OrderPart = field(default_factory=OrderPart)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Tell that a stage begins, and take its time."""
        self.progress({"stage": name})
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def machine(self) -> str:
        """What the machine of the order is loaded by, with its devices; empty where it names none.

        Raises `InputError` for machines that do not come with shardc, unless their description came along.
        """
        from shardc.costs.machines.machine import machine_names, placed_machine

        machine = self.order.machine
        plain, at, mapping = machine.partition("@")
        name, colon, counts = plain.partition(":")
        if self.order.machine_text:
            path = self.folder / f"{name or 'machine'}.toml"
            path.write_text(self.order.machine_text, encoding="utf-8")
            machine = f"{path}{colon}{counts}{at}{mapping}"
        elif name and name not in machine_names():
            raise InputError(
                f"the service has no machine {name!r}",
                where="order.machine",
                fix=f"use one of {', '.join(machine_names())}, or send a description (machine_text)",
            )
        return placed_machine(machine, getattr(self.order, "mapping", "")) or ""

    def need_machine(self) -> str:
        """`machine`; `InputError` where the order has none."""
        found = self.machine()
        if not found:
            raise InputError("no machine to simulate is given", where="order.machine", fix="name one, such as h100-dgx")
        return found

    @property
    def shown_machine(self) -> str:
        """What results call the machine."""
        return self.order.machine or ("machine" if self.order.machine_text else "")

    def config(self) -> Config:
        """The order's settings, with this process's cache: nothing else of the environment counts."""
        measured = None
        if self.order.measured:
            measured = self.folder / "measured.json"
            measured.write_text(self.order.measured, encoding="utf-8")
        here = Config.from_environment()
        ours = Config(
            cache_dir=here.cache_dir,
            cache_bytes=here.cache_bytes,
            timeout=here.timeout,
            num_threads=here.num_threads,
            profile=measured,
        )
        return self.order.settings.within(ours)

    def read_program(self, digest: str = "") -> SourceProgram:
        """The program of that digest (default: the order's) as it was uploaded."""
        from shardc.frontends.load import load_program

        data = self.program_data(digest or self.order.program)
        with self.stage("read"):
            return replace(load_program(data, self.order.name), config=self.config())

    def program_data(self, digest: str) -> bytes:
        """The bytes of that digest that came with the order."""
        data = self.programs.get(digest)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise RunError(f"program {digest[:12]} is missing from the order, or damaged")
        return data

    def annotate(
        self, program: SourceProgram, annotations: Mapping[str, str], mesh: Mapping[str, int]
    ) -> SourceProgram:
        """The program with annotations and a mesh, as `Program.annotate`."""
        wanted = mesh_of(mesh)
        if not annotations and wanted is None:
            return program
        annotated = program.annotate(dict(annotations), mesh=wanted)
        if wanted is not None:
            warn_of_new_axes(program.mesh, annotated.module)
        return annotated

    def open_program(self) -> SourceProgram:
        """The order's program, annotated."""
        return self.annotate(self.read_program(), self.order.annotations, self.order.mesh)

    def propagate(self, program: SourceProgram) -> PropagatedProgram:
        with self.stage("propagate"):
            return program.propagate(conservative=self.order.conservative)

    def partition(self, program: SourceProgram | None = None) -> PartitionedProgram:
        """The order's program (or another form of it) partitioned as the order says."""
        return self.partition_propagated(self.propagate(self.open_program() if program is None else program))

    def partition_propagated(self, propagated: PropagatedProgram) -> PartitionedProgram:
        """The same after propagation, or of a program that was read already partitioned."""
        order = self.order
        machine = (self.machine() or None) if order.partitioned_for == "machine" else None
        with self.stage("partition"):
            return propagated.partition(
                machine=machine,
                windowed_einsum=order.windowed_einsum,
                pipelined_loops=order.pipelined_loops,
                decomposed_rings=order.decomposed_rings,
                plan=order.plan,
                memory=order.memory or None,
                judge=judge_of(machine, propagated.program.config),
            )

    def partition_files(self, partitioned: PartitionedProgram) -> dict[str, bytes]:
        """``report.json``, ``partitioned.hlo`` and ``stages.json``."""
        module, options = partitioned.module, dict(partitioned.options)
        with self.stage("report"):
            if options.get("machine") is not None:
                options["machine"] = self.shown_machine
            stages = StagesFacts(
                name=module.name,
                devices=partitioned.num_devices,
                mesh=None if module.mesh is None else module.mesh.shape,
                arg_names=partitioned.program.arg_names,
                options=options,
                one_device=partitioned.program.for_one_device,
            )
            return {
                # What was measured is among the facts beside the files: equal orders make equal files.
                "report.json": self.json({**with_memory(partitioned.facts, partitioned), "seconds": {}}),
                "partitioned.hlo": partitioned.as_text().encode(),
                "stages.json": plain.to_json(stages).encode(),
            }

    @staticmethod
    def json(data: object) -> bytes:
        """Plain data as a file."""
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
