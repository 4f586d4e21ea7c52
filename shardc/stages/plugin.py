"""What JAX finds as the plug-in ``shardc``: that of `shardc.frontends.pjrt`, with reports of what it compiles."""

from __future__ import annotations

import os

__all__ = ["initialize"]


def initialize() -> None:
    """Register the plug-in with JAX, which calls this."""
    from shardc.frontends.pjrt import plugin

    if plugin.initialize() and os.environ.get("SHARDC_REPORT_TO"):
        from shardc.stages.last_compiled import report_programs

        report_programs()
