"""Waiting for a cluster that gets there in its own time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from kubernetes import client


def eventually(holds: Callable[[], Any], timeout_s: float = 20) -> Any:
    """Wait for something truthy and return it; errors of a server that is away count as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = None
        with contextlib.suppress(client.ApiException, OSError):
            result = holds()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.1)


def balanced_service(core: client.CoreV1Api, namespace: str, name: str) -> IPv4Address:
    core.create_namespaced_service(
        namespace,
        {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8000}]}},
    )
    ingress = eventually(lambda: core.read_namespaced_service(name, namespace).status.load_balancer.ingress)
    return IPv4Address(ingress[0].ip)
