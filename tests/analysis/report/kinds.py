"""The colours of kinds of work as the page's style gives them, and how far apart two colours look."""

from __future__ import annotations

import re

from shardc.analysis.report.page import page_parts

__all__ = ["distance", "kind_colours"]


def kind_colours() -> dict[str, str]:
    """``#rrggbb`` by the name of the style's variable (``kind-all-gather``)."""
    return dict(re.findall(r"--(kind-[a-z-]+): (#[0-9a-f]{6});", page_parts()[0]))


def distance(a: str, b: str) -> float:
    """Of two colours in OKLab (Ottosson, "A perceptual color space for image processing", 2020): 0.02 is just seen."""
    return sum((x - y) ** 2 for x, y in zip(_oklab(a), _oklab(b), strict=True)) ** 0.5


def _oklab(colour: str) -> tuple[float, float, float]:
    red, green, blue = (_linear(int(colour[n : n + 2], 16) / 255) for n in (1, 3, 5))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def _linear(c: float) -> float:
    return float(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
