"""Functions that the low-level language refuses, each with the words of the complaint as its docstring."""

# ruff: noqa: RET503, RET504

from __future__ import annotations

from collections.abc import Callable

from shardc.native.lowlevel.builtins import as_i32
from shardc.native.lowlevel.kinds import address, i32, i64, u64
from shardc.native.lowlevel.records import ACQUIRE, Atomic, Record, Span


class Point(Record):
    x: i64
    y: Atomic[i32]


def narrows(x: i64) -> i32:
    """i64 where i32 is needed; convert it: as_i32(...)"""
    return x


def mixes_signs(x: i64, y: u64) -> bool:
    """i64 and u64 have no type in common; convert one of them"""
    return x < y


def is_not_a_truth_value(x: i64) -> i64:
    """i64 is no truth value; compare it: x != 0"""
    if x:
        return 1
    return 0


def may_have_no_value(x: i64) -> i64:
    """y may have no value here; assign to it before, on every way"""
    if x > 0:
        y = 1
    return y


def has_no_value_after_a_loop(x: i64) -> i64:
    """y may have no value here"""
    while x > 0:
        y = x
        x -= 1
    return y


def does_not_return(x: i64) -> i64:
    """it may end without a result; end every way with return"""
    if x > 0:
        return 1


def has_no_annotation(x) -> i64:
    """annotate every parameter and the result"""
    return 0


def has_a_list(x: i64) -> i64:
    """a List; use what the language has"""
    return [x][0]


def tries(x: i64) -> i64:
    """a statement (Try) that the language lacks; use assignments"""
    try:
        return x
    finally:
        pass


def lacks_the_field(p: Point) -> i64:
    """Point has no field z; it has x, y"""
    return p.z


def has_no_order(p: Point) -> i32:
    """0 arguments; give 0 and a memory order"""
    return p.y.load()


def has_the_wrong_order(p: Point) -> None:
    """no memory order that it may have; end with one of relaxed, release, seq_cst"""
    p.y.store(1, ACQUIRE)


def takes_an_atomic_for_its_value(p: Point) -> i32:
    """Atomic[i32] where i32 is needed"""
    return p.y


def assigns_to_an_atomic(p: Point) -> None:
    """an assignment to Atomic[i32]; use its methods"""
    p.y = p.y


def compares_references(p: Point, q: Point) -> bool:
    """a comparison of Point; compare fields, or address_of(...) of both"""
    return p == q


def chains(x: i64) -> bool:
    """a chain of comparisons; write a < b and b < c"""
    return 0 < x < 3


def loops_over_elements(x: Span[i64]) -> i64:
    """a loop over something else than a range; write for NAME in range(...)"""
    total = 0
    for y in x:
        total += y
    return total


def counts_down(x: i64) -> i64:
    """a range whose step is no positive constant; write a while loop"""
    for k in range(x, 0, -1):
        x += k
    return x


def passes_too_much(x: i64) -> i64:
    """2 arguments; give 1"""
    return narrow(x, x)


def passes_another_kind_of_function(x: i64) -> None:
    """where Callable[[address], i64] is needed"""
    takes_a_function(narrow)


def overflows() -> i32:
    """the number 2147483648 where i32 is needed"""
    return 1 << 31


def is_behind_a_return(x: i64) -> i64:
    """a statement that is never reached; delete it"""
    return x
    x += 1


def changes_its_kind(x: i64) -> i32:
    """i64 where i32 is needed"""
    y = as_i32(x)
    y = x
    return y


def adds_to_an_address(a: address) -> address:
    """an operator that addresses lack; add, subtract, or take as_u64(...)"""
    return a & 63


def narrow(x: i64) -> i64:
    return x


def takes_a_function(f: Callable[[address], i64]) -> None:
    f(0)
