"""What is written in one turn of the loop goes out together, and nothing is held back for longer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from shardc.service.api.connection import BufferedTransport


class Sent:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.parts.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def test_one_turn_is_one_packet() -> None:
    async def turns() -> Sent:
        sent = Sent()
        together = BufferedTransport(cast(Any, sent), asyncio.get_running_loop())
        for part in (b"head", b"", b"body"):
            together.write(part)
        assert sent.parts == []
        await asyncio.sleep(0)
        assert sent.parts == [b"headbody"]
        together.write(b"next")
        await asyncio.sleep(0)
        assert sent.parts == [b"headbody", b"next"]
        return sent

    asyncio.run(turns())


def test_what_is_large_goes_at_once_and_the_end_leaves_nothing() -> None:
    async def turns() -> Sent:
        sent = Sent()
        together = BufferedTransport(cast(Any, sent), asyncio.get_running_loop())
        together.write(b"head")
        together.write(bytes(1 << 20))
        assert [len(part) for part in sent.parts] == [4 + (1 << 20)]
        together.write(b"last")
        assert not together.is_closing()
        together.close()
        await asyncio.sleep(0)
        return sent

    sent = asyncio.run(turns())
    assert sent.parts[1:] == [b"last"] and sent.closed
