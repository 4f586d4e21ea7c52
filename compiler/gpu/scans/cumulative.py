"""Running totals: along memory where rows lie together, else down columns."""

from __future__ import annotations

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.scans.column_scan import emit_column_scan
from shardc.compiler.gpu.scans.row_scan import emit_row_scan
from shardc.compiler.gpu.scans.scan import scan_of

__all__ = ["emit_cumulative", "takes_cumulative"]


def takes_cumulative(kernel: GpuKernel) -> bool:
    """A reduce-window whose windows reach from one end to their own position."""
    return scan_of(kernel) is not None


def emit_cumulative(kernel: GpuKernel) -> None:
    """One pass over memory, or two where there is little side by side."""
    scan = scan_of(kernel)
    assert scan is not None
    if scan.free and scan.inner == 1:
        emit_row_scan(kernel, scan)
    else:
        emit_column_scan(kernel, scan)
