"""Memory of devices: refused before it is asked for where the machine cannot have it."""

from __future__ import annotations

import pytest

from shardc.collectives.call.memory import check_memory
from shardc.hlo.errors import RunError


def test_more_than_the_machine_has_is_refused() -> None:
    check_memory(1 << 20, 4, "temporaries")
    with pytest.raises(RunError, match=r"4 devices in this process need 1024.0 TiB of memory together") as caught:
        check_memory(1 << 50, 4, "temporaries of program step")
    assert "shardc simulate" in str(caught.value.fix) and "program step" in str(caught.value)
