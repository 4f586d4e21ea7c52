"""The per-device program at a compile service, and the results that follow from it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shardc.analysis.report.stage_facts import Reported
from shardc.compiler.targets import check_target, find_target, name_of
from shardc.costs.machines.machine import GivenMapping, mapping_text
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.launcher.driver.compiled import Compiled
from shardc.service.client.executables import FILE, fetch_or_compile, repeat_warnings
from shardc.service.client.requests import Result
from shardc.service.client.terms import cpu_of, machine_terms, need_none_of
from shardc.service.orders import (
    CompileOrder,
    ExplainOrder,
    Order,
    PartitionOrder,
    ReportOrder,
    SimulateOrder,
    order_key,
)

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Difference, Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.compiler.executable import Executable
    from shardc.hlo.ir.ir import Module
    from shardc.native.llvm.target import Target
    from shardc.partitioner.plan.plan_reasons import PlanReasons
    from shardc.partitioner.program import PartitionedProgram
    from shardc.service.client.program import RemoteProgram, RemotePropagated

__all__ = ["RemotePartitioned"]

O = TypeVar("O", bound=Order)


@dataclass(frozen=True)
class RemotePartitioned(Reported):
    """The per-device program; ``options`` are those of `Propagated.partition`."""

    propagated: RemotePropagated
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        said = ", ".join(
            f"{name}={value}" for name, value in self.options.items() if value not in (None, "auto", False)
        )
        return f"<RemotePartitioned of {self.program!r}{f' with {said}' if said else ''}>"

    @property
    def program(self) -> RemoteProgram:
        return self.propagated.program

    def order(self, kind: type[O], machine: str | Path | None = None, **fields: Any) -> O:
        """An order of ``kind`` that partitions so; ``machine``, if any, is the one that is asked about."""
        ours = self.options["machine"]
        if ours and machine and str(ours) != str(machine):
            raise UnsupportedError(
                f"the program is partitioned for {ours}, but the request names {machine}: an order has one machine",
                fix="partition without a machine, or for the same machine",
            )
        terms = {k: v for k, v in self.options.items() if k != "machine" and v is not None}
        terms |= {**machine_terms(ours or machine), "partitioned_for": "machine" if ours else "bytes"}
        return self.program.order(kind, conservative=self.propagated.conservative, **terms, **fields)

    @cached_property
    def result(self) -> Result:
        """The files of the partitioned program."""
        return self.program.carry_out(self.order(PartitionOrder))

    @property
    def module(self) -> Module:
        """The per-device program as `Partitioned.module` has it, made here; `as_text` is the service's."""
        return self.here.module

    @property
    def compiled_module(self) -> Module:
        """As `Partitioned.compiled_module`, made here."""
        return self.here.compiled_module

    @property
    def plan(self) -> PlanReasons | None:
        """As `Partitioned.plan`, made here."""
        return self.here.plan

    @property
    def why_no_plan(self) -> str:
        """As `Partitioned.why_no_plan`, made here."""
        return self.here.why_no_plan

    def draw_plan(self, path: str | Path) -> None:
        """As `Partitioned.draw_plan`, made here."""
        from shardc.launcher.drawings.draw_plan import write_plan_svg

        write_plan_svg(self.program.name, self.plan, path)

    @property
    def num_devices(self) -> int:
        return int(self.report()["devices"])

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage, at the service."""
        seconds: Mapping[str, float] = self.result.facts.get("seconds", {})
        return seconds

    def as_text(self) -> str:
        """HLO text that XLA compiles and runs as it is."""
        return self.result.file("partitioned.hlo").decode()

    @cached_property
    def _report(self) -> dict[str, Any]:
        told: dict[str, Any] = self.result.json("report.json")
        return {**told, "seconds": dict(self.seconds)}

    def explanation(
        self,
        machine: str | Path | None = None,
        *,
        remedies: int = 0,
        tries: int = 12,
        seconds: float = 30.0,
        thresholds: Mapping[str, float] | None = None,
    ) -> Explanation:
        """As `Partitioned.explanation`."""
        from shardc.analysis.explain.diagnostics.survey import thresholds_of
        from shardc.analysis.explain.explanation import Explanation

        thresholds_of(thresholds or {})  # names and shares are checked there
        terms = {"remedies": remedies, "tries": tries, "seconds": float(seconds), "thresholds": dict(thresholds or {})}
        result = self.program.carry_out(self.order(ExplainOrder, machine, **terms))
        return replace(result.value(Explanation, "explanation.json"), machine=str(machine or ""))

    def difference(self, other: RemotePartitioned, machine: str | Path | None = None) -> Difference:
        """What changes from this one to ``other``: the same program with other annotations."""
        from shardc.analysis.explain.explanation import Difference

        mine, others = self.program, other.program
        if mine.data != others.data or self.options != other.options:
            raise UnsupportedError(
                "a compile service cannot compare two different programs", fix="load both without a service"
            )
        terms = {"other_annotations": dict(others.specs), "other_mesh": dict(others.sizes), "remedies": 0}
        return mine.carry_out(self.order(ExplainOrder, machine, **terms)).value(Difference, "difference.json")

    def write_report(
        self,
        path: str | Path,
        *,
        machine: str | Path | None = None,
        mapping: GivenMapping | None = None,
        remedies: int = 0,
        seconds: float = 30.0,
    ) -> None:
        """As `Partitioned.write_report`."""
        from shardc.analysis.report.write import report_target
        from shardc.launcher.run.output_files import write_text

        target = report_target(path)
        terms = {"mapping": mapping_text(mapping), "remedies": remedies, "seconds": float(seconds)}
        result = self.program.carry_out(self.order(ReportOrder, machine, **terms))
        write_text(target, result.file("report.html").decode())

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mapping: GivenMapping | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """As `Partitioned.simulate`."""
        from shardc.analysis.simulate.simulation import Simulation

        if not (machine or self.options["machine"]):
            raise InputError("no machine to simulate is given", fix="name one, such as h100-dgx")
        terms = {"mapping": mapping_text(mapping), "ignore_memory": ignore_memory, "page": False}
        return self.program.carry_out(self.order(SimulateOrder, machine, **terms)).value(Simulation, "simulation.json")

    def compile(self, target: str = "cpu", *, profile: bool = False, tune: float | None = None) -> Compiled:
        """As `Partitioned.compile`: made at the service for this computer's processor, verified, and loaded here.

        Raises `EnvironmentProblem` where another version of shardc runs there.
        """
        from shardc.frontends.load import content_kind
        from shardc.native.llvm.target import host_target

        check_target(target)
        program = self.program if tune is None else self.program.tuned(tune)
        self._check_use()
        start = time.perf_counter()
        order = self.compile_order(target, host_target(), profile=profile, page=False)
        executable, result = fetch_or_compile(program.requests, order, {program.digest: program.data})
        repeat_warnings(result)
        seconds = {**result.facts.get("seconds", {}), "service": time.perf_counter() - start}
        # Only functions have pytrees; other programs are not read here for that.
        known = program.local is not None or content_kind(program.data) == "exported"
        return _RemoteCompiled(self, executable, program.here.jax if known else None, seconds)

    def _check_use(self) -> None:
        if reason := need_none_of(self.program.config):
            raise UnsupportedError(f"a compile service cannot do this: {reason}", fix="compile on this machine")

    def compile_order(self, target: str, machine: Target, **fields: Any) -> CompileOrder:
        """The order for an executable for ``target`` (a GPU of this computer is its kind) and a processor."""
        kind = name_of(str(find_target(target))) if target == "cuda" else target
        return self.order(CompileOrder, target=kind, cpu=cpu_of(machine), **fields)

    @cached_property
    def here(self) -> PartitionedProgram:
        """The same stage, made in this process."""
        from shardc.analysis.simulate.judge_of import judge_of

        judge = judge_of(self.options["machine"], self.program.config) if "plan" in self.options else None
        return self.propagated.here.partition(**self.options, judge=judge)

    def compile_ahead(
        self, folder: str | Path, *, name: str = "", cpu: str = "", system: str = ""
    ) -> tuple[AheadProgram, list[Path]]:
        """As `Partitioned.compile_ahead`; the object is compiled at the service, files are written here.

        Raises `EnvironmentProblem` where another version of shardc runs there.
        """
        from shardc.analysis.ahead import ahead_target, write_ahead
        from shardc.compiler.ahead.program import AheadProgram, identifier
        from shardc.compiler.cache.serialize import read_bytes
        from shardc.native.llvm.target import Target
        from shardc.service.results import AheadFacts

        self._check_use()
        if name and identifier(name) != name:
            raise InputError(
                f"{name!r} is not a valid name in C", where="the program's name", fix=f"use {identifier(name)!r}"
            )
        order = self.compile_order("cpu", ahead_target(cpu, system), ahead=True, symbol=name, page=False)
        program = self.program
        result = program.requests.carry_out(order, {program.digest: program.data}, key=order_key(order))
        repeat_warnings(result)
        facts = result.value(AheadFacts, "ahead.json")
        target = Target(facts.target.triple, facts.target.cpu, facts.target.features)
        made = AheadProgram(read_bytes(result.file(FILE), FILE), target, facts.name)
        return made, write_ahead(made, folder)


class _RemoteCompiled(Compiled):
    """What a service has compiled; the program that it was compiled from is the stage at the service."""

    def __init__(
        self, partitioned: RemotePartitioned, executable: Executable, jax: Any, seconds: Mapping[str, float]
    ) -> None:
        super().__init__(executable, jax, partitioned.program.config, seconds, lambda: partitioned.here)
        self._remote_partitioned = partitioned

    def partitioned(self) -> Any:
        return self._remote_partitioned
