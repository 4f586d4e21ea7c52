"""How shardings spread: the choices that a caller has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PropagationOptions"]


@dataclass(frozen=True, slots=True)
class PropagationOptions:
    """How shardings spread.

    ``strategy``: ``aggressive`` decides for each tensor alone, ``basic`` spreads only what every tensor of an
    operation can take, ``basic-then-aggressive`` does one after the other. ``conservative`` never splits an axis and
    gives no shards to dimensions that an operation cuts or moves. ``by_user_priority`` off takes all annotations at
    once, ``by_op_priority`` off lets all operations take part from the start. ``share_functions`` decides for a called
    function once, from all its calls together, instead of for each call. ``strict_interface`` lets arguments and
    results have only what XLA can pass: even shards of whole axes, even where something else was asked for. With
    ``every_function`` computations that nobody calls are public functions, which take part.
    """

    strategy: Literal["aggressive", "basic", "basic-then-aggressive"] = "aggressive"
    conservative: bool = False
    by_user_priority: bool = True
    by_op_priority: bool = True
    share_functions: bool = False
    strict_interface: bool = False
    every_function: bool = False
