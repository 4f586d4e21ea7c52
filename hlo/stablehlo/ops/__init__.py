"""One handler per StableHLO, CHLO or Shardy op, in files split by the families of the op set.

Start with `elementwise`; `shardc.hlo.stablehlo.converter` calls the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.hlo.stablehlo.converter import Handler
from shardc.hlo.stablehlo.ops import (
    checks,
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    shardy,
    transfer,
    window,
)

__all__ = ["HANDLERS"]

#: MLIR op name to handler.
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **elementwise.HANDLERS,
        **contraction.HANDLERS,
        **reduction.HANDLERS,
        **shape.HANDLERS,
        **indexing.HANDLERS,
        **window.HANDLERS,
        **linalg.HANDLERS,
        **random.HANDLERS,
        **control.HANDLERS,
        **collective.HANDLERS,
        **shardy.HANDLERS,
        **transfer.HANDLERS,
        **checks.HANDLERS,
    }
)
