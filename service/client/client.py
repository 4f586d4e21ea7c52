"""`shardc.connect`: the client of a compile service, which takes and gives programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, ParseError
from shardc.launcher.driver.compiled import Compiled, job_config
from shardc.partitioner.program import SourceProgram
from shardc.service.client.address import Address
from shardc.service.client.partitioned import RemotePartitioned
from shardc.service.client.program import RemoteProgram
from shardc.service.client.requests import Hear, Requests
from shardc.service.client.texts import program_bytes

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.analysis.sweep.result import SweepResult

__all__ = ["Client", "connect"]

#: What can be given as a program: a file, its contents, or a program of this process.
Given = str | Path | bytes | SourceProgram | RemoteProgram


def connect(url: str = "", token: str = "", key: str = "", *, hear: Hear | None = None) -> Client:
    """Return a client of the compile service at ``url``; default: ``SHARDC_SERVER``.

    ``token`` identifies you to the service; default: ``SHARDC_TOKEN``, then ``SHARDC_TOKEN_FILE``. ``key`` is the key
    with which the service signs, in hexadecimal; default: ``SHARDC_SERVER_KEY``, otherwise the client asks the service.
    ``hear`` is called with each `Job` that changes. This call itself sends nothing.

    Raises `InputError` for a wrong URL, `EnvironmentProblem` without the package urllib3.

    >>> with shardc.connect("http://127.0.0.1:8377") as service:
    ...     print(service.address.url)
    http://127.0.0.1:8377
    """
    config = job_config()
    address = Address.of(config, url)
    if token:
        address = replace(address, token=token)
    return Client(replace(address, key=key) if key else address, config=config, hear=hear)


class Client(Requests):
    """A service's client; made by `connect`. ``config`` are the settings that orders take along.

    Every method raises what the same stage raises here, and `EnvironmentProblem` where the service does not answer.

    >>> service
    Client('http://127.0.0.1:...')
    """

    def __init__(self, address: Address, *, config: Config | None = None, **options: Any) -> None:
        super().__init__(address, **options)
        self.config = config or job_config()

    def program(self, given: Given, name: str = "") -> RemoteProgram:
        """Make a program at the service from a file's path, a file's contents, or a `Program`, which is sent as HLO
        text. Errors call contents ``name``. Raises `InputError` and `ParseError` for input that is not a program.

        >>> wide = service.program("step.mlir").annotate({"x": "data"}, mesh={"data": 4, "model": 2})
        >>> wide.partition().report()["devices"]
        8
        """
        if isinstance(given, RemoteProgram):
            return given
        if isinstance(given, SourceProgram):
            from shardc.service.client.terms import need_none_of

            if given.config.custom_calls:
                raise InputError(
                    f"a compile service cannot be used: {need_none_of(given.config)}", fix="compile on this machine"
                )
            return RemoteProgram(self, program_bytes(given), "", given.config, local=given)
        from shardc.frontends.load import content_kind, read_file

        data, name = (given, name or "program") if isinstance(given, bytes) else (read_file(given), name or str(given))
        if not data.strip():
            raise ParseError("the program is empty", where=name)
        content_kind(data, name)  # what is no program is not sent
        return RemoteProgram(self, data, name, self.config)

    def partition(self, program: Given, *, conservative: bool = False, **options: Any) -> RemotePartitioned:
        """The per-device program; ``options`` are those of `Propagated.partition`.

        >>> service.partition("step.mlir", machine="h100-dgx").num_devices
        4
        """
        made = self.program(program).propagate(conservative=conservative).partition(**options)
        made.result  # noqa: B018  (what goes wrong belongs here)
        return made

    def compile(self, program: Given, target: str = "cpu", *, profile: bool = False) -> Compiled:
        """An executable, loaded on this job's devices; ``target`` and ``profile`` as `Partitioned.compile`.

        >>> len(service.compile("step.mlir").parameter_shapes)
        4
        """
        return self.program(program).partition().compile(target, profile=profile)

    def simulate(self, program: Given, machine: str | Path | None = None, **options: Any) -> Simulation:
        """What a step takes on a described machine; ``options`` are those of `Program.simulate`.

        >>> service.simulate("step.mlir", "h100-dgx").devices
        4
        """
        return self.program(program).simulate(machine, **options)

    def explain(self, program: Given, machine: str | Path | None = None, **options: Any) -> Explanation:
        """Why each collective is there; ``options`` are those of `Partitioned.explanation`.

        >>> service.explain("step.mlir").totals.collectives > 0
        True
        """
        return self.program(program).partition(machine=machine).explanation(machine, **options)

    def report(self, program: Given, path: str | Path, *, machine: str | Path | None = None, **options: Any) -> None:
        """Write one HTML page about a program; ``options`` are those of `Partitioned.write_report`.

        >>> service.report("step.mlir", "report.html")
        """
        self.program(program).partition(machine=machine).write_report(path, machine=machine, **options)

    def auto(
        self,
        program: Given,
        *,
        machine: str | Path,
        devices: int | None = None,
        mesh: Any = None,
        memory: float | None = None,
        keep: str | Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """The annotations that `shardc.auto` finds, as its plan's ``to_dict`` has them: ``specs``, ``jax`` (code),
        ``toml``, ``step_seconds``. With ``devices`` only the axes of a ``mesh`` count.

        >>> service.auto("step.mlir", machine="h100-dgx")["step_seconds"] < 1e-3
        True
        """
        from shardc.service.client.terms import machine_terms
        from shardc.service.orders import AutoOrder

        given = self.program(program) if mesh is None else self.program(program).annotate(mesh=mesh)
        names = None if keep is None else (keep,) if isinstance(keep, str) else tuple(keep)
        terms = {"devices": devices or 0, "memory": float(memory or 0), "keep": names, **machine_terms(machine)}
        found: dict[str, Any] = given.carry_out(given.order(AutoOrder, **terms)).json("plan.json")
        return found

    def sweep(self, program: Given | Sequence[Given], **options: Any) -> SweepResult:
        """Meshes and annotations ranked by predicted time; ``options`` are those of `shardc.sweep`.

        >>> service.sweep("step.mlir", devices=[4], machine="h100-dgx", refine=0).best.mesh
        {'data': 1, 'model': 4}
        """
        from shardc.service.client.sweep import sweep

        given = [program] if isinstance(program, Given) else program
        return sweep([self.program(p) for p in given], **options)
