"""Waiting for a cluster that gets there in its own time."""

from __future__ import annotations

from ipaddress import IPv4Address

from kubernetes import client

from tests.lab.waiting import eventually


def balanced_service(core: client.CoreV1Api, namespace: str, name: str) -> IPv4Address:
    core.create_namespaced_service(
        namespace,
        {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8000}]}},
    )
    ingress = eventually(lambda: core.read_namespaced_service(name, namespace).status.load_balancer.ingress)
    return IPv4Address(ingress[0].ip)
