"""The text of functions of the low-level language, as syntax trees; and what is wrong with one, by file and line."""

from __future__ import annotations

import ast
import inspect
import linecache
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from threading import Lock
from typing import Any

from shardc.native.lowlevel.kinds import FunctionKind
from shardc.native.lowlevel.records import kind_of

__all__ = ["LanguageError", "names_of", "problem", "signature_of", "tree_of"]

#: Python 3.11 counts the depth of the trees that all threads parse in one number, and refuses them when it is wrong.
_PARSING = Lock()


class LanguageError(TypeError):
    """A function that is not of the low-level language: where, what, and what to write instead."""


def problem(function: Any, node: ast.AST | None, what: str, fix: str) -> LanguageError:
    """What is wrong in a function, and what to write instead."""
    code = function.__code__
    line = getattr(node, "lineno", code.co_firstlineno)
    return LanguageError(f"{code.co_filename}:{line}: in {function.__name__}: {what}; {fix}")


def tree_of(function: Any) -> ast.FunctionDef:
    """The definition of a function."""
    code = function.__code__
    found = _definitions(code.co_filename).get((code.co_firstlineno, function.__name__))
    if found is None:
        raise problem(function, None, "its definition is not found", "define it by `def` in a file")
    return found


@cache
def _definitions(filename: str) -> Mapping[tuple[int, str], ast.FunctionDef]:
    """All functions of a file by their first line and name."""
    with _PARSING:
        tree = ast.parse("".join(linecache.getlines(filename)), filename)
    functions = _functions_in(tree)
    return {(min([f.lineno, *(d.lineno for d in f.decorator_list)]), f.name): f for f in functions}


def _functions_in(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """All functions that are defined in a body, also in those of its statements."""
    for statement in getattr(node, "body", ()):
        if isinstance(statement, ast.FunctionDef):
            yield statement
        yield from _functions_in(statement)


def names_of(function: Any) -> Mapping[str, Any]:
    """What names that are not the function's own mean in it."""
    found = inspect.getclosurevars(function)
    return {**found.builtins, **function.__globals__, **found.nonlocals}


@cache
def signature_of(function: Callable[..., Any]) -> FunctionKind:
    """The kinds of a function's parameters and result."""
    code = function.__code__
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        arguments = tuple(kind_of(hints[name]) for name in code.co_varnames[: code.co_argcount])
        return FunctionKind(arguments, kind_of(hints["return"]))
    except (KeyError, NameError, TypeError) as cause:
        raise problem(function, None, f"no type for it: {cause}", "annotate every parameter and the result") from cause
