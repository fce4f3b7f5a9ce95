"""Requests as they reach a pod, read off its network: `python wire.py PORT SECONDS` inside the pod's namespace.

Prints one JSON line for each request's head: a mapping of lower-case header names to values, and ":line". The salt in
a body is a line of its own.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time

_ETH_P_ALL = 3
_IPV4_OVER_ETHERNET = b"\x08\x00"
_TCP = 6
# As linux/asm-generic/socket.h numbers it; Python has no name for it.
_SO_RCVBUFFORCE = 33


def request_head(frame: bytes, port: int) -> dict[str, str] | None:
    """The HTTP/1.1 request head that an Ethernet frame to this port begins, if it does."""
    if frame[12:14] != _IPV4_OVER_ETHERNET or frame[23] != _TCP:
        return None
    tcp = 14 + (frame[14] & 15) * 4
    if int.from_bytes(frame[tcp + 2 : tcp + 4], "big") != port:
        return None
    payload = frame[tcp + (frame[tcp + 12] >> 4) * 4 :]
    head, end, _ = payload.partition(b"\r\n\r\n")
    if not end or not head.startswith((b"POST ", b"GET ")):
        return None
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return {":line": line, **{name.strip().lower(): value.strip() for name, _, value in pairs}}


def salt(frame: bytes) -> dict[str, str] | None:
    """The salt of a prompt that is in the frame."""
    match = re.search(rb'"cache_salt":"([^"]*)"', frame)
    return {":line": f"cache_salt {match[1].decode()}"} if match else None


def watch(port: int, seconds: float) -> None:
    """Print heads as they come, for so many seconds."""
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as tap:
        # Room for all frames of a busy moment.
        tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 * 2**20)
        tap.settimeout(0.2)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while time.monotonic() < deadline:
            try:
                frame = tap.recv(65_535)
            except TimeoutError:
                continue
            for seen in (request_head(frame, port), salt(frame)):
                if seen:
                    sys.stdout.write(json.dumps(seen) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]))
