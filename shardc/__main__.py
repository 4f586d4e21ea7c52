"""``python -m shardc`` and the command ``shardc``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    from shardc.cli.app import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
