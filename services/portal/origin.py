"""From which address a request came, for the directory's audit."""

from __future__ import annotations

import ipaddress
from contextvars import ContextVar

ADDRESS: ContextVar[str] = ContextVar("address", default="")
"""Of the request that is answered; empty where no proxy noted it."""


def address_of(forwarded: str) -> str:
    """The last one of the header x-forwarded-for: the portal's Envoy adds whose connection it is; those before may be
    anything. Empty for none.
    """
    last = forwarded.rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return ""
