"""Executables from a compile service: code is loaded only if the same compiler made it and its signature holds.

That it is the same compiler shows in the key: an order's key is a digest of the order and of shardc's own sources, so
the service's is ours when both would make the same of it, bit by bit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from shardc.hlo.errors import RunError
from shardc.service.client.requests import Requests, Result
from shardc.service.orders import CompileOrder, order_key

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable

__all__ = ["FILE", "fetch_or_compile", "read_executable", "repeat_warnings"]

#: The executable among the files of a result.
FILE = "executable.shardc"


def fetch_or_compile(
    requests: Requests, order: CompileOrder, programs: Mapping[str, bytes]
) -> tuple[Executable, Result]:
    """The executable that ``order`` makes at the service, and all that it makes. One that is there takes one question.

    Raises `EnvironmentProblem` where the service runs another version of shardc, and what went wrong.
    """
    key = order_key(order)
    kept = requests.fetch_stored(key, FILE)
    if kept is not None:
        entry, data = kept
        return read_executable(data, order), Result(requests, entry, order, programs)
    result = requests.carry_out(order, programs, key=key)
    return read_executable(result.file(FILE), order), result


def read_executable(data: bytes, order: CompileOrder) -> Executable:
    """The executable in a verified file; `RunError` where it is not for the processor that ``order`` names."""
    from shardc.compiler.cache.serialize import read_bytes

    executable = read_bytes(data, f"{FILE} from the compile service")
    if order.cpu is not None and executable.features not in ("", order.cpu.features):
        raise RunError("the compile service made code for another processor than the requested one")
    return replace(executable, seconds={})


def repeat_warnings(result: Result) -> None:
    """Say here what shardc warned of there."""
    for text in result.facts.get("warnings") or ():
        logging.getLogger("shardc").warning("%s", text)
