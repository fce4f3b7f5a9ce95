"""Ports for programs that are started beside a lab: of tests and benchmarks."""

from __future__ import annotations

import socket

_HELD = list[socket.socket]()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that stay with this process until it ends, whatever listens there meanwhile.

    A port that is only looked up may be taken before its program listens, or while it restarts: each connection
    out needs one too. So a socket stays bound to it, which never listens: Linux gives such a port to nothing by
    itself, and lets a program listen there that sets SO_REUSEADDR as this socket does, as servers do
    (net/ipv4/inet_connection_sock.c: inet_csk_bind_conflict; inet_hashtables.c: __inet_hash_connect).
    """
    held = [socket.socket() for _ in range(count)]
    for holder in held:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
    _HELD.extend(held)
    return [holder.getsockname()[1] for holder in held]


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def free_address() -> str:
    """127.0.0.1 with one of `free_ports`."""
    return f"127.0.0.1:{free_port()}"
