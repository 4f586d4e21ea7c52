"""How much is sent by one collective: the limit of joining them, and of what searches price as joined."""

__all__ = ["JOINED_BYTES"]

#: Collectives that do not need each other are joined up to so many bytes together (`CombineCollectives`).
JOINED_BYTES = 4 << 20
