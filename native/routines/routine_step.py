"""The step of programs that are tables of calls of routines: the same native code for all of them."""

from __future__ import annotations

import ctypes
from typing import Any

from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import exported, external, fill_memory, inline
from shardc.native.lowlevel.kinds import address, i32
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import Span
from shardc.native.memory.strided_copies import copy_strided
from shardc.native.routines.records import (
    ARENA,
    CLEAR,
    CONSTANT,
    END,
    MOVE,
    PRODUCT_F32,
    PRODUCT_F64,
    RESULT,
    ROUTINE_STEP,
    SORT,
    ClearCall,
    MoveCall,
    Place,
    ProductCall,
    RoutineCall,
    SortCall,
)
from shardc.native.routines.sorting import sort_rows

__all__ = ["routine_step", "routine_step_ir"]

#: What a step answers at its end.
_AT_THE_END = -1


@external("shardc_product_f32")
def _product_f32(call: ProductCall, to: address, left: address, right: address) -> None:
    _product(call, to, left, right, ctypes.c_float)


@external("shardc_product_f64")
def _product_f64(call: ProductCall, to: address, left: address, right: address) -> None:
    _product(call, to, left, right, ctypes.c_double)


def _product(call: ProductCall, to: int, left: int, right: int, t: Any) -> None:
    """What the products mean in a simulation."""
    size = ctypes.sizeof(t)
    for b in range(call.batches):
        for r in range(call.rows):
            for c in range(call.columns):
                total = 0.0
                for d in range(call.depth):
                    x = b * call.left_batch + r * call.left_row + d * call.left_depth
                    y = b * call.right_batch + d * call.right_depth + c
                    total += t.from_address(left + x * size).value * t.from_address(right + y * size).value
                t.from_address(to + (b * call.to_batch + r * call.to_row + c) * size).value = total


@exported(ROUTINE_STEP)
def routine_step(
    arena: address, arguments: Span[address], results: Span[address], constants: address, device: i32
) -> i32:
    """All calls of the table that stands at the beginning of the constants."""
    at = constants
    while True:
        head = RoutineCall.at(at)
        if head.routine == END:
            return _AT_THE_END
        if head.routine == MOVE:
            move = MoveCall.at(at)
            to = _address(move.to, arena, arguments, results, constants)
            copy_strided(move.plan, to, _address(move.source, arena, arguments, results, constants))
        elif head.routine == CLEAR:
            clear = ClearCall.at(at)
            fill_memory(_address(clear.to, arena, arguments, results, constants), 0, clear.count)
        elif head.routine == SORT:
            sort = SortCall.at(at)
            target = _address(sort.to, arena, arguments, results, constants)
            scratch = _address(sort.scratch, arena, arguments, results, constants)
            sort_rows(sort, target, _address(sort.source, arena, arguments, results, constants), scratch)
        else:
            product = ProductCall.at(at)
            target = _address(product.to, arena, arguments, results, constants)
            left = _address(product.left, arena, arguments, results, constants)
            right = _address(product.right, arena, arguments, results, constants)
            if head.routine == PRODUCT_F32:
                _product_f32(product, target, left, right)
            elif head.routine == PRODUCT_F64:
                _product_f64(product, target, left, right)
        at += head.nbytes


@inline
def _address(
    place: Place, arena: address, arguments: Span[address], results: Span[address], constants: address
) -> address:
    if place.space == ARENA:
        return arena + place.offset
    if place.space == CONSTANT:
        return constants + place.offset
    if place.space == RESULT:
        return results[place.index] + place.offset
    return arguments[place.index] + place.offset


def routine_step_ir(target: Target) -> str:
    """The IR text of a module with the step for ``target``; it calls what `products_module` defines."""
    return compile_functions((routine_step,), target)
