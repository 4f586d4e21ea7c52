"""The address of a compile service, and the token that it knows its user by."""

from __future__ import annotations

import ipaddress
import urllib.parse
from dataclasses import dataclass, field

from shardc.hlo.config import Config
from shardc.hlo.errors import InputError

__all__ = ["Address"]


@dataclass(frozen=True, slots=True)
class Address:
    """A service's ``url`` without a slash at its end, the ``token`` for it, and the ``key`` (hexadecimal) that it signs
    with; empty: the service tells."""

    url: str
    token: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @staticmethod
    def of(config: Config, url: str = "") -> Address:
        """The service at ``url``, else the one of the settings.

        Raises `InputError` where neither says one, and for what is no URL of a service.
        """
        given = (url or config.server).strip()
        if not given:
            raise InputError("no compile service is named", fix="give --server URL, or set SHARDC_SERVER=URL")
        return Address(
            _check_url(given, "the URL of the service" if url else "environment variable SHARDC_SERVER"),
            config.token,
            config.server_key,
        )

    @property
    def loopback(self) -> bool:
        """Whether the service is on this computer."""
        host = urllib.parse.urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")


def _check_url(url: str, where: str) -> str:
    fix = "give a URL such as http://127.0.0.1:8377 or https://shardc.example.com"
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError("the address is not a URL", where=where, fix=fix) from None
    if parts.username is not None or parts.password is not None:
        raise InputError("a URL must not hold a password", where=where, fix="set SHARDC_TOKEN or SHARDC_TOKEN_FILE")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise InputError(f"{url!r} is not the URL of a compile service", where=where, fix=fix)
    if any(c.isspace() or not c.isprintable() for c in url):
        raise InputError(f"{url!r} has invalid characters", where=where, fix=fix)
    return url.rstrip("/")
