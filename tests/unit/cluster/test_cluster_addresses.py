from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kubernetes import client

from lab.cluster.addresses import AddressController, choose

POOL = IPv4Network("198.18.48.0/24")


def test_address_follows_from_the_name() -> None:
    first = choose("a/b", None, POOL, set())
    assert first == choose("a/b", None, POOL, set())
    assert first is not None
    assert first in POOL
    assert first not in {POOL.network_address, POOL.broadcast_address}


def test_taken_address_is_passed_over_until_the_pool_is_full() -> None:
    taken: set[IPv4Address] = set()
    for _ in POOL.hosts():
        address = choose("a/b", None, POOL, taken)
        assert address is not None
        assert address not in taken
        taken.add(address)
    assert choose("a/b", None, POOL, taken) is None


def test_wanted_address_is_given_or_nothing() -> None:
    assert choose("a/b", "198.18.48.9", POOL, set()) == IPv4Address("198.18.48.9")
    assert choose("a/b", "198.18.48.9", POOL, {IPv4Address("198.18.48.9")}) is None
    assert choose("a/b", "10.0.0.1", POOL, set()) is None


class FakeServices:
    """The two calls that the controller makes."""

    def __init__(self, *services: Any) -> None:
        self.services = services
        self.written: dict[str, Any] = {}

    def list_service_for_all_namespaces(self, **_: Any) -> Any:
        return SimpleNamespace(items=self.services)

    def patch_namespaced_service_status(self, name: str, namespace: str, body: Any) -> None:
        self.written[f"{namespace}/{name}"] = body["status"]["loadBalancer"]["ingress"]


def service(
    name: str, *, kind: str = "LoadBalancer", ip: str | None = None, load_balancer_class: str | None = None
) -> Any:
    return client.V1Service(
        metadata=client.V1ObjectMeta(name=name, namespace="team"),
        spec=client.V1ServiceSpec(type=kind, load_balancer_class=load_balancer_class),
        status=client.V1ServiceStatus(
            load_balancer=client.V1LoadBalancerStatus(ingress=[client.V1LoadBalancerIngress(ip=ip)] if ip else None)
        ),
    )


def reconcile(*services: Any) -> dict[str, Any]:
    controller = AddressController(client.ApiClient(), POOL)
    fake = FakeServices(*services)
    with patch.object(controller, "_core", fake):
        controller.reconcile()
    return fake.written


def test_only_services_without_an_address_are_written() -> None:
    written = reconcile(service("has", ip="198.18.48.7"), service("lacks"), service("inner", kind="ClusterIP"))
    assert list(written) == ["team/lacks"]
    assert written["team/lacks"][0]["ip"] != "198.18.48.7"


def test_two_new_services_never_share_an_address() -> None:
    names = [f"s{n}" for n in range(200)]
    written = reconcile(*(service(name) for name in names))
    assert len({entries[0]["ip"] for entries in written.values()}) == len(names)


def test_another_load_balancers_services_are_left_alone() -> None:
    assert reconcile(service("foreign", load_balancer_class="example.com/metal")) == {}


def test_service_that_is_no_longer_balanced_loses_its_address() -> None:
    assert reconcile(service("was", kind="ClusterIP", ip="198.18.48.7")) == {"team/was": None}
