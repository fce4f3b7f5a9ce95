"""Runs kubectl with a kubeconfig that is on no disk; reads from its messages whether the cluster is away or refuses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager

VARIABLE = "KUBECONFIG_TEXT"
"""Of the environment: an administrator's kubeconfig, for commands that the engine runs."""

# What kubectl prints when it could not ask, as opposed to having been refused: of net/http, and of API servers that
# start or are behind an address that moves (k8s.io/apimachinery/pkg/api/errors).
_AWAY = (
    *("connection refused", "was refused - did you specify", "unable to connect", "no route to host", "etcdserver"),
    *("i/o timeout", "timed out", "eof", "connection reset by peer", "client connection lost"),
    *("tls handshake timeout", "context deadline exceeded", "serviceunavailable", "too many requests"),
    *("currently unable to handle the request", "gateway timeout", "client.timeout exceeded"),
)


@contextmanager
def kubeconfig_option(kubeconfig: str) -> Iterator[tuple[str, int]]:
    """kubectl's option for a kubeconfig in memory, and the file descriptor that it must inherit."""
    file = os.memfd_create("kubeconfig")
    try:
        with open(file, "w", encoding="utf-8", closefd=False) as target:
            target.write(kubeconfig)
        yield f"--kubeconfig=/proc/self/fd/{file}", file
    finally:
        os.close(file)


def kubectl(
    kubeconfig: str, *arguments: str, timeout_s: float, given: str | None = None, hidden: Collection[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `kubectl ARGUMENTS`. given: what it reads on stdin. hidden: variables that it does not inherit.

    Raises FileNotFoundError where there is no kubectl, and subprocess.TimeoutExpired.
    """
    with kubeconfig_option(kubeconfig) as (option, file):
        return subprocess.run(
            ["kubectl", option, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            pass_fds=(file,),
            env={name: value for name, value in os.environ.items() if name not in {VARIABLE, *hidden}},
        )


def is_away(stderr: str) -> bool:
    """Whether kubectl's message is that the API server did not answer."""
    return any(sign in stderr.lower() for sign in _AWAY)


def last_lines(stderr: str) -> str:
    """The end of what kubectl printed, in one line, without its warnings."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Warning", "WARNING"))]
    return " / ".join(lines[-3:]) or "no reason given"
