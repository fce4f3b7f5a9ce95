"""The lab's way to its API server: one client, and server-side apply of plain objects."""

from __future__ import annotations

from typing import Any

from kubernetes import client, config, dynamic

from lab import kubeconfigs
from lab.cluster import controlplane
from lab.paths import Lab

FIELD_MANAGER = "inference-lab"

Manifest = dict[str, Any]


def connect(lab: Lab) -> client.ApiClient:
    """A client with the lab's administrator credentials."""
    return _client(kubeconfigs.read(lab.kubeconfig))


def connect_as(lab: Lab, user: dict[str, str]) -> client.ApiClient:
    """A client with other credentials, as a kubeconfig has them."""
    return _client(kubeconfigs.in_memory(controlplane.kubeconfig_of(lab, user)))


def _client(kubeconfig: dict[str, Any]) -> client.ApiClient:
    connection: client.ApiClient
    connection = config.new_client_from_config_dict(kubeconfig, persist_config=False)
    return connection


def apply(connection: client.ApiClient, *manifests: Manifest, subresource: str | None = None) -> None:
    """Server-side apply each object in turn; the lab's fields win over other managers'."""
    api = dynamic.DynamicClient(connection)
    for manifest in manifests:
        resource = api.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
        if subresource is not None:
            resource = resource.subresources[subresource]
        api.server_side_apply(
            resource,
            body=manifest,
            name=manifest["metadata"]["name"],
            namespace=manifest["metadata"].get("namespace"),
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
        )
