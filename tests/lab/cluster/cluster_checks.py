"""Waiting for a cluster that gets there in its own time."""

from __future__ import annotations

from ipaddress import IPv4Address

from kubernetes import client

from tests.lab.waiting import eventually


def balanced_service(core: client.CoreV1Api, namespace: str, name: str) -> IPv4Address:
    service = {
        "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8000}]},
    }
    # An API server that has just started has no address for it yet.
    eventually(lambda: core.create_namespaced_service(namespace, service))
    ingress = eventually(lambda: core.read_namespaced_service(name, namespace).status.load_balancer.ingress)
    return IPv4Address(ingress[0].ip)
