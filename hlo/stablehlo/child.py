"""Requests to MLIR in another process: broken bytecode ends a fork of the fork server, never this process."""

from __future__ import annotations

import importlib.util
import logging
import marshal
import re
import signal
import sys
from pathlib import Path
from typing import Any

from shardc.hlo.errors import EnvironmentProblem, InputError, Location, ParseError, ShardcError, UnsupportedError
from shardc.hlo.stablehlo.bad_sharding import sharding_error
from shardc.hlo.stablehlo.fork_server import ForkServerGone, ask

__all__ = ["attach_shardings", "encode_bytecode", "missing_jaxlib", "parse_error", "read_plain", "refine_text"]

log = logging.getLogger("shardc")

_SCRIPT = Path(__file__).with_name("mlir") / "worker.py"
#: A program takes milliseconds to read, a megabyte half a second; twice at the most (`fork_server`).
_SECONDS = 20.0
_SECONDS_PER_MEGABYTE = 2.0


def read_plain(data: bytes, file: str) -> dict[str, Any]:
    """The plain form (see ``mlir/extract.py``) of MLIR text, bytecode or a portable artifact.

    Raises ParseError with file, line and column for what MLIR rejects, and for input that ends its reader;
    EnvironmentProblem without jaxlib.
    """
    if not data.startswith(b"ML\xefR"):
        _check_text(data, file)
    answer: dict[str, Any] = _ask({"do": "read", "data": data}, file)
    return answer


def attach_shardings(data: bytes, request: dict[str, Any], file: str) -> str:
    """MLIR text of ``data`` with shardings set; ``request`` as in ``mlir/attach.py``."""
    answer: str = _ask({"do": "attach", "data": data, "attach": request}, file)
    return answer


def refine_text(data: bytes, types: tuple[str, ...], file: str) -> str:
    """MLIR text of ``data`` for arguments of the MLIR types ``types``; InputError where they do not fit."""
    try:
        answer: str = _ask({"do": "refine", "data": data, "types": types}, file)
    except ParseError as e:
        if "efin" not in e.what:  # what MLIR says of refinements
            raise
        raise InputError(
            f"the module does not take arguments of types {', '.join(types)}: {e.what.rpartition('op ')[2]}",
            where=file or None,
            fix="give one array (or anything with shape and dtype) for each argument of its entry function",
        ) from None
    return answer


def encode_bytecode(data: bytes) -> bytes:
    """MLIR bytecode of MLIR text."""
    answer: bytes = _ask({"do": "encode", "data": data}, "")
    return answer


def missing_jaxlib(detail: str) -> EnvironmentProblem:
    """The error for a machine without (a suitable) jaxlib."""
    return EnvironmentProblem(
        f"reading StableHLO needs jaxlib: {detail}",
        fix="install the extra: pip install 'shardc[jax]' (HLO text needs no extra)",
    )


def _check_text(data: bytes, file: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        column = e.start - (data.rfind(b"\n", 0, e.start) + 1) + 1
        raise ParseError(
            "the input is neither MLIR bytecode nor UTF-8 text",
            where=Location(file, line, column),
            fix="export the program again; bytecode starts with the bytes 'ML\\xefR'",
        ) from None


def _ask(request: dict[str, Any], file: str) -> Any:
    if importlib.util.find_spec("jaxlib") is None:
        raise missing_jaxlib("it is not installed")
    seconds = _SECONDS + _SECONDS_PER_MEGABYTE * len(request["data"]) / 1e6
    try:
        found = ask(_SCRIPT, request, seconds)
    except ForkServerGone:
        raise EnvironmentProblem(
            "the process that reads StableHLO ends again and again", where=sys.executable
        ) from None
    if found.code == -signal.SIGALRM:
        raise ParseError(
            f"MLIR's reader did not finish within {seconds:.0f} seconds, twice",
            where=Location(file),
            fix="the file is probably damaged: export it again",
        )
    try:
        kind, answer = marshal.loads(found.data if found.code == 0 else b"")
    except (EOFError, ValueError, TypeError):
        raise _crash(found.code, found.said, file) from None
    if kind == "missing":
        raise missing_jaxlib(answer)
    if kind == "failed":
        raise parse_error(answer, file, request["data"])
    if found.said:
        log.debug("MLIR reader: %s", found.said)
    return answer


def _crash(code: int, messages: str, file: str) -> ParseError:
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    last = messages.splitlines()[-1] if messages else ""
    return ParseError(
        f"this input crashes MLIR's reader ({how})" + (f": {last}" if last else ""),
        where=Location(file),
        fix="the file is damaged or from an incompatible release: export it again, or use HLO or MLIR text",
    )


_WRITE_AGAIN = "correct this line, or write the whole file again: jax.jit(f).lower(...).as_text() is StableHLO"
_POSITION = re.compile(r'(?:error: )?(?:loc\()?"-":(\d+):(\d+)\)?: ?')


def parse_error(message: str, file: str, data: bytes) -> ShardcError:
    """MLIR's diagnostics as one of our errors: the first sentence, and the place it names."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    found = next((m for line in lines if (m := _POSITION.search(line))), None)
    text = next((line for line in lines if "error:" in line), lines[0] if lines else "no reason given")
    text = _POSITION.sub("", text).removeprefix("error:").strip()
    where = Location(file, int(found.group(1)), int(found.group(2))) if found else Location(file)
    bad_sharding = sharding_error(text, where, data)
    if bad_sharding is not None:
        return bad_sharding
    if "!quant." in message:
        return UnsupportedError(
            "quantised types (!quant.uniform) are not supported", where=where, fix="dequantise the program first"
        )
    version = "newer" in message or "version" in message.lower()
    fix = "read it with the jaxlib that wrote it, or export it for an older version" if version else _WRITE_AGAIN
    return ParseError(f"not a StableHLO module: {text}", where=where, fix=fix)
