"""Finds arrays of a loop's state that the loop writes completely and never reads, so their initial values do not
matter."""

from __future__ import annotations

from shardc.hlo.ir.ir import Instruction, users_of
from shardc.hlo.loops.loop_counter import carried_element, find_counter

__all__ = ["is_written_whole"]


def is_written_whole(loop: Instruction, element: int) -> bool:
    """Whether iteration i of ``loop`` writes row i of this element of its state, for all rows, and reads none.

    Example: the array in which ``jax.lax.scan`` stacks what its iterations return.
    """
    condition, body = loop.attrs["condition"], loop.attrs["body"]
    counter = find_counter(loop)
    if counter is None or (counter.start, counter.step) != (0, 1):
        return False
    update = body.root.operands[element]
    if update.opcode != "dynamic-update-slice" or carried_element(update.operands[0], body) != element:
        return False
    whole, part = update.shape.dims, update.operands[1].shape.dims
    split = [d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if n != m]
    if len(split) != 1 or part[split[0]] != 1 or whole[split[0]] != counter.trips:
        return False
    if carried_element(update.operands[2 + split[0]], body) != counter.index:
        return False
    users = users_of(body)
    readers = [u for i in body if carried_element(i, body) == element for u in users[i]]
    passed = any(u.opcode != "get-tuple-element" for u in users[body.parameters[0]])
    tested = any(carried_element(i, condition) == element for i in condition)
    return readers == [update] and users[update] == [body.root] and not passed and not tested
