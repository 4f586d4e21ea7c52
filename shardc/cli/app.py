"""The command line: one typer application, one file per command, errors as text."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Annotated, Any

import typer

from shardc.cli.checked_command import CheckedCommand
from shardc.cli.commands import (
    ahead,
    auto,
    bench,
    calibrate,
    check,
    demo,
    explain,
    mpiexec,
    ops,
    opt,
    partition,
    propagate,
    report,
    run,
    serve,
    simulate,
    sweep,
    verify,
    visualize,
)
from shardc.cli.progress import is_quiet, shown_progress
from shardc.cli.shown_warnings import shown_warnings
from shardc.cli.view import print_error, rank
from shardc.hlo.errors import InputError, ShardcError
from shardc.hlo.variables import warn_of_unknown
from shardc.launcher.jobs.interrupts import prompt_interrupts

__all__ = ["app", "main"]

app = typer.Typer(
    name="shardc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Partition array programs over device meshes, compile them, and run them on MPI ranks or virtual devices.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from shardc.hlo.version import VERSION

        print(f"shardc {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


_command = partial(app.command, cls=CheckedCommand)
_command()(propagate.propagate)
_command()(partition.partition)
_command()(run.run)
_command("compile")(ahead.compile_program)
_command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(mpiexec.mpiexec)
_command()(bench.bench)
_command()(simulate.simulate)
_command()(sweep.sweep)
_command()(auto.auto)
_command()(calibrate.calibrate)
_command()(explain.explain)
_command()(check.check)
_command()(report.report)
_command()(visualize.visualize)
_command()(verify.verify)
_command()(opt.opt)
_command()(ops.ops)
_command()(ops.devices)
_command()(serve.serve)
_command()(demo.demo)

_COMMANDS = frozenset(c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands)
#: What to add for a missing option.
_MISSING = {
    "--machine": "--machine h100-dgx, or another machine of the package such as a100-dgx, or a file",
    "--value": "--value NAME: the name of an argument or of an instruction; --value '*' shows all",
    "--output": "-o NAME, the file or folder to write",
    "--budget": '--budget FILE: a TOML file with limits such as [limits] wire_bytes = "6 MB"',
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input or environment, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with prompt_interrupts(), shown_warnings(is_quiet(given)), shown_progress(given), _results_aside(given):
            if rank() <= 0:
                warn_of_unknown()
            code = app(args=None if arguments is None else list(arguments), prog_name="shardc", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BaseException as e:
        return _fail(e, given[0] if given and given[0] in _COMMANDS else "")


#: Options that name a file to write, with standard output for it.
_OUT = re.compile(
    r" (-o|--(output|outputs|report|provenance|trace|svg|memory-svg|picture|profile-out|plot|save)[ =])\s*- "
)


#: What the library of commands says of a text that is no number, and of one outside of its bounds.
_NUMBER = re.compile(
    r"Invalid value for (.+?): Input should be "
    r"(?:a valid (integer|number)\b.*|(greater|less) than or equal to (\S+))"
)


@contextmanager
def _results_aside(arguments: Sequence[str]) -> Iterator[None]:
    """Where a file goes to standard output (``-o -``), what else is told goes to stderr."""
    if arguments[:1] != ["mpiexec"] and _OUT.search(" ".join(arguments) + " "):
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


def _fail(error: BaseException, command: str = "") -> int:
    """Print an error as text and say how the process ends; in a running MPI job all ranks end with it."""
    from shardc.launcher.jobs.failures import SharedFailureError, end_job, exit_code_of, tell_before_mpi
    from shardc.launcher.jobs.rank_process import running_mpi

    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, SystemExit):
        return exit_code_of(error)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and not error.filename:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fix = "free space on the disk that it goes to, or send it elsewhere"
        error = InputError(f"standard output cannot be written: {error.strerror}", fix=fix)
    if isinstance(error, SharedFailureError):
        return _fail_together(error.error)
    if hasattr(error, "format_message"):  # click's usage errors, of whichever click typer brings along
        return _fail_usage(error, command)
    if isinstance(error, typer.Abort):
        error = KeyboardInterrupt()
    mpi = running_mpi()
    if mpi is not None and mpi.COMM_WORLD.Get_size() > 1:
        end_job(error, mpi)
    if rank() >= 0:
        tell_before_mpi(rank(), _text(error))
    else:
        print_error(_text(error))
    return exit_code_of(error)


def _fail_together(error: ShardcError) -> int:
    if rank() <= 0:
        print_error(f"error: {error}")
    return error.exit_code


def _plain_number(found: re.Match[str]) -> str:
    option, kind, bound, limit = found.groups()
    wanted = "a whole number" if kind == "integer" else "a number"
    limits = f" of at {'least' if bound == 'greater' else 'most'} {limit}" if bound else ""
    return f"{option.replace(chr(39), '')} takes {wanted}{limits}"


def _fail_usage(error: Any, command: str) -> int:
    if rank() <= 0:
        context = getattr(error, "ctx", None)
        message = _NUMBER.sub(_plain_number, error.format_message())
        if "\n" in message or not message:  # no arguments: click's answer is the help text, or it has shown it
            print(message, file=sys.stderr)
        else:
            path = f"shardc {command}".rstrip() if context is None else context.command_path
            missing = next((add for option, add in _MISSING.items() if f"Missing option '{option}'" in message), "")
            print_error(f"error: {message}\n  fix: {f'add {missing}; ' * bool(missing)}see {path} --help")
    return 2


def _text(error: BaseException) -> str:
    from shardc.launcher.jobs.failures import describe

    if isinstance(error, ShardcError | KeyboardInterrupt):
        return describe(error)
    if isinstance(error, MemoryError):
        return "error: out of memory"
    return describe(error) + "\nerror: this is a bug in shardc: please report it with the text above"
