"""Pass and pipeline machinery.

A pass is a small frozen dataclass: ``name``, one line of ``why``, options as fields, ``run(module) -> module``.
A pipeline is a tuple of passes; `run_pipeline` alone times, verifies, dumps and, on request, checks them.

A pass may say in ``looks_at``, of its class, which opcodes it looks at: a program without any of them stays as it is.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shardc.hlo.config import Config
from shardc.hlo.files import make_folder, unwritable
from shardc.hlo.ir.ir import Module
from shardc.hlo.progress import stage
from shardc.hlo.verify import verify

__all__ = ["Pass", "PassTimes", "pause_collector", "run_pipeline"]


class Pass(Protocol):
    """A transformation of whole modules; see the module docstring."""

    @property
    def name(self) -> str: ...

    @property
    def why(self) -> str: ...

    def run(self, module: Module) -> Module: ...


@dataclass(slots=True)
class PassTimes:
    """Seconds per pass, in the order run."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@contextmanager
def pause_collector() -> Iterator[None]:
    """No cyclic garbage collection meanwhile; also a decorator.

    Programs are large and stay alive, and every full collection walks them again: half of a pass's time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _IdlePasses:
    """Tells which passes change nothing in a module, without running them: small programs have nothing for most."""

    def __init__(self) -> None:
        self._module: Module | None = None
        self._opcodes: frozenset[str] = frozenset()
        self._done: list[Pass] = []

    def is_idle(self, step: Pass, module: Module) -> bool:
        """Whether the pass has nothing to look at, or an equal one left this very module as it is."""
        if module is not self._module:
            self._module, self._done = module, []
            self._opcodes = frozenset(i.opcode for i in module.instructions())
        looks_at: frozenset[str] | None = getattr(step, "looks_at", None)
        return (looks_at is not None and looks_at.isdisjoint(self._opcodes)) or step in self._done

    def ran(self, step: Pass, before: Module, after: Module) -> None:
        if after is before:
            self._done.append(step)


def run_pipeline(
    module: Module,
    passes: Sequence[Pass],
    config: Config,
    *,
    times: PassTimes | None = None,
    check: Callable[[Pass, Module, Module], None] | None = None,
) -> Module:
    """Run ``passes`` in order.

    With ``config.check`` every result is verified and ``check(pass, before, after)`` is called (the evaluator's
    comparison, where the caller has inputs). With ``config.dump_to`` each result is written to a numbered file.
    """
    idle = _IdlePasses()
    for number, step in enumerate(passes):
        start = time.perf_counter()
        after = module
        if not idle.is_idle(step, module):
            with pause_collector(), stage(step.name):
                after = step.run(module)
            idle.ran(step, module, after)
        if times is not None:
            times.add(step.name, time.perf_counter() - start)
        if config.check and after is not module:
            verify(after)
            if check is not None:
                check(step, module, after)
        if config.dump_to is not None and re.search(config.dump_passes, step.name):
            from shardc.hlo.text.printer import print_module  # as long to import as a tenth of the compiler

            _dump(config.dump_to, f"{after.name}.{number:03d}.{step.name}.hlo", print_module(after))
        module = after
    return module


def _dump(folder: Path, name: str, text: str) -> None:
    where = "environment variable SHARDC_DUMP_TO"
    make_folder(folder, where)
    try:
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as e:
        raise unwritable(folder / name, e, where) from None
