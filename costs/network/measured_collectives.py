"""What collectives cost on a computer that was calibrated: between what was measured, by bytes and by members."""

from __future__ import annotations

from shardc.costs.machines.measured import CollectiveCurve, Measured, interpolate

__all__ = ["measured_collective"]

#: Whose curve counts where an operation has none, and how often its bytes.
_LIKE = {
    "ragged-all-to-all": "all-to-all",
    "collective-broadcast": "all-gather",
    "send": "collective-permute",
    "recv": "collective-permute",
}


def measured_collective(measured: Measured, opcode: str, result_bytes: float, members: int, devices: int) -> float:
    """Seconds of a collective with so many bytes of local result, in groups of ``members`` among ``devices``.

    Groups are of those devices that were measured together: several groups at a time share cores and memory as one
    large group does, so that with ``devices`` at work a member's bytes take what they take in a group of all, less
    what a smaller group moves less. Between measured numbers of devices it is a line in logarithms.
    """
    if members < 2:
        return 0.0
    opcode = opcode.removesuffix("-start")
    opcode = _LIKE.get(opcode, opcode)
    curves = [c for c in measured.collectives if c.opcode == opcode and c.where == measured.where]
    if not curves:
        curves = [c for c in measured.collectives if c.opcode == "all-reduce" and c.where == measured.where]
    if not curves:
        return 0.0
    by_count = sorted({c.members: c for c in curves}.items())
    points = tuple((n, _seconds(c, opcode, result_bytes, members)) for n, c in by_count)
    most, seconds = points[-1]
    # Beyond what was measured every further device adds its share.
    return interpolate(points, devices) if devices <= most else seconds * devices / most


def _seconds(curve: CollectiveCurve, opcode: str, result_bytes: float, members: int) -> float:
    """For groups of ``members`` in place of one of all: latency as measured, bytes by what a member moves."""
    moved = _moved(opcode, result_bytes, members)
    whole = _moved(opcode, 1.0, curve.members)
    size = moved / whole
    first, last = curve.points[0], curve.points[-1]
    if size > last[0]:
        return last[1] * size / last[0]
    return interpolate(curve.points, max(size, first[0]))


def _moved(opcode: str, result_bytes: float, members: int) -> float:
    """Bytes that a member reads and writes: what its own result and its part of the others' take."""
    if opcode == "reduce-scatter":
        return result_bytes * members
    return result_bytes
