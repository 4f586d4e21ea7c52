"""What may become of a mutated text: a program that is printed, partitioned and printed again, or an error of ours."""

from __future__ import annotations

import contextlib
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.stages.stages import Program

__all__ = ["READERS", "SECONDS", "outcome"]

#: How long a text of at most some 20 kB may take.
SECONDS = 20


class TooSlowError(Exception):
    """A text took longer than it may."""


def _small(module: Module) -> bool:
    count = sum(len(c.instructions) for c in module.computations)
    largest = max((s.nbytes for i in module.instructions() for s in i.shape.leaves()), default=0)
    return count <= 400 and largest <= 1 << 22 and module.num_partitions <= 64


def _hlo(text: str) -> str:
    module = read_hlo(text, "mutant.hlo")
    verify(module)
    if not _small(module):
        return ""
    found = difference(module, read_hlo(print_module(module)))
    if found is not None:
        return f"printed as another program: {found}"
    return _partitioned(module)


def _stablehlo(text: str) -> str:
    module = read_stablehlo(text, "mutant.mlir")
    verify(module)
    return _partitioned(module)


def _partitioned(module: Module) -> str:
    if _small(module) and (module.num_partitions > 1 or module.mesh is not None):
        partitioned = Program(module).propagate().partition()
        read_hlo(partitioned.as_text())
    return ""


READERS: dict[str, Callable[[str], str]] = {"hlo": _hlo, "stablehlo": _stablehlo}


def outcome(kind: str, text: str) -> str:
    """In one line what went wrong; empty when the text was taken or refused as it should be."""
    try:
        with _within(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return READERS[kind](text)
    except ShardcError:
        return ""
    except BaseException as error:
        ours = [f for f in traceback.extract_tb(error.__traceback__) if "tests/fuzz" not in f.filename]
        at = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""
        return f"{type(error).__name__} in {at}: {str(error).splitlines()[0][:100] if str(error) else ''}"


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
