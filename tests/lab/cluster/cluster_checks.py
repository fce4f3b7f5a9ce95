"""Waiting for a cluster that gets there in its own time."""

from __future__ import annotations

from ipaddress import IPv4Address

from kubernetes import client

from lab.cluster import addresses
from tests.lab.waiting import eventually


def balanced_service(core: client.CoreV1Api, namespace: str, name: str) -> IPv4Address:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8000}]}
    service = client.V1Service.model_validate({"metadata": {"name": name}, "spec": spec})
    # An API server that has just started has no address for it yet.
    eventually(lambda: core.create_namespaced_service(namespace, service))
    address: IPv4Address = eventually(lambda: addresses.held(core.read_namespaced_service(name, namespace)))
    return address
