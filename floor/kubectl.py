"""Runs kubectl with a kubeconfig that is on no disk; reads from its messages whether the cluster is away or refuses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection

VARIABLE = "KUBECONFIG_TEXT"
"""Of the environment: an administrator's kubeconfig, for commands that the engine runs."""

# What kubectl prints when it could not ask, as opposed to having been refused.
# What it prints where an object is not as waited for within the time that it was given.
_OWN_LIMIT = "timed out waiting for the condition"
# An address that moves and API servers that start give the others (k8s.io/apimachinery/pkg/api/errors, net/http).
_AWAY = (
    *("connection refused", "i/o timeout", "unable to connect", "no route to host", "etcdserver", "timed out", "eof"),
    *("connection reset by peer", "client connection lost", "tls handshake timeout", "context deadline exceeded"),
    *("serviceunavailable", "currently unable to handle the request", "too many requests", "gateway timeout"),
)


def kubectl(
    kubeconfig: str, *arguments: str, timeout_s: float, given: str | None = None, hidden: Collection[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `kubectl ARGUMENTS`. given: what it reads on stdin. hidden: variables that it does not inherit.

    Raises FileNotFoundError where there is no kubectl, and subprocess.TimeoutExpired.
    """
    file = os.memfd_create("kubeconfig")
    try:
        with open(file, "w", encoding="utf-8", closefd=False) as target:
            target.write(kubeconfig)
        return subprocess.run(
            ["kubectl", f"--kubeconfig=/proc/self/fd/{file}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            pass_fds=(file,),
            env={name: value for name, value in os.environ.items() if name not in {VARIABLE, *hidden}},
        )
    finally:
        os.close(file)


def is_away(stderr: str) -> bool:
    """Whether kubectl's message is that the API server did not answer."""
    text = stderr.lower().replace(_OWN_LIMIT, "")
    return any(sign in text for sign in _AWAY)


def last_lines(stderr: str) -> str:
    """The end of what kubectl printed, in one line, without its warnings."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Warning", "WARNING"))]
    return " / ".join(lines[-3:]) or "no reason given"
