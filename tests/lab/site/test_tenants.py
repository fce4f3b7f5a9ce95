"""A tenant's life: added, one key rotated, removed, each by `pulumi up` (000.33, C.04)."""

from __future__ import annotations

from pathlib import Path

from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat

# Envoy takes a changed Secret from its control plane within this.
IN_FORCE_S = 20


def status(site: Site, key: str) -> int:
    with site.http(key=key) as client:
        return client.post("/chat/completions", json=chat("qwen3-32b")).status_code


def in_force(site: Site, key: str, wanted: int) -> None:
    until(lambda: status(site, key) == wanted, timeout_s=IN_FORCE_S, what=f"{wanted} for the key")


def listener_changes(cluster: Cluster) -> str:
    """How often each Envoy pod has replaced a listener."""
    counter = "/stats?filter=listener_manager.listener_modified"
    return "".join(envoy.name + cluster.envoy_admin(envoy, counter) for envoy in cluster.envoys())


def test_life_of_a_tenant(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    """Keys come and go without anybody else noticing: neither their keys nor the connections that they hold."""
    changes = listener_changes(cluster)
    assert changes

    def hired(document: Document) -> None:
        document["tenants"]["initech"] = {"models": ["qwen3-32b"], "keys": {"old": {}, "steady": {}}}

    def rotated(document: Document) -> None:
        hired(document)
        document["tenants"]["initech"]["keys"]["old"] = {"rotation": 2}

    with edited_stack(site.lab, tmp_path) as stack:
        first = stack.up(hired).keys
        assert {name: first[name] for name in site.front.keys} == site.front.keys
        in_force(site, first["initech.old"], 200)
        in_force(site, first["initech.steady"], 200)

        second = stack.up(rotated).keys
        assert second["initech.old"] != first["initech.old"]
        assert {name: key for name, key in second.items() if name != "initech.old"} == {
            name: key for name, key in first.items() if name != "initech.old"
        }
        in_force(site, second["initech.old"], 200)
        in_force(site, first["initech.old"], 401)
        assert status(site, first["initech.steady"]) == 200
        assert status(site, site.key) == 200
    in_force(site, second["initech.old"], 401)
    in_force(site, second["initech.steady"], 401)
    assert status(site, site.key) == 200
    assert listener_changes(cluster) == changes
