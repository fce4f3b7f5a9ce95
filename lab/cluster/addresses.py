"""Addresses for Services of type LoadBalancer, from the lab's range; kube-proxy then serves them."""

from __future__ import annotations

import hashlib
import logging
from ipaddress import IPv4Address, IPv4Network

from kubernetes import client

from lab.cluster.parts import metadata_of, name_of, namespace_of, spec_of, status_of

log = logging.getLogger(__name__)


def choose(key: str, wanted: str | None, pool: IPv4Network, taken: set[IPv4Address]) -> IPv4Address | None:
    """An address for the Service `namespace/name`: the one it asks for, else one that follows from its name.

    A Service that is deleted and made again gets the same address as long as no other has it. None when the pool is
    full, or when the wanted address is taken or lies outside of it.
    """
    if wanted:
        address = IPv4Address(wanted)
        return address if address in pool and address not in taken else None
    hosts = list(pool.hosts())
    first = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % len(hosts)
    return next((address for address in hosts[first:] + hosts[:first] if address not in taken), None)


def held(service: client.V1Service) -> IPv4Address | None:
    """The address in a Service's status."""
    balancer = status_of(service).load_balancer
    entries = balancer.ingress if balancer else None
    return next((IPv4Address(entry.ip) for entry in entries or () if entry.ip), None)


def _is_balanced(service: client.V1Service) -> bool:
    return spec_of(service).type == "LoadBalancer"


class AddressController:
    """Writes addresses into Service status. The status is its only record, so a restart forgets nothing."""

    def __init__(self, connection: client.ApiClient, pool: IPv4Network) -> None:
        self._core = client.CoreV1Api(connection)
        self._pool = pool

    def reconcile(self) -> None:
        """Bring all Services to what they should have; called after each change, so a deleted one's address is free."""
        services = self._core.list_service_for_all_namespaces(_request_timeout=10).items
        balanced = [s for s in services if _is_balanced(s) and not spec_of(s).load_balancer_class]
        taken = {address for service in balanced if (address := held(service)) is not None}
        for service in balanced:
            if held(service) is None and metadata_of(service).deletion_timestamp is None:
                self._assign(service, taken)
        for service in services:
            if not _is_balanced(service) and held(service) is not None:
                self._write(service, None)

    def _assign(self, service: client.V1Service, taken: set[IPv4Address]) -> None:
        key = f"{namespace_of(service)}/{name_of(service)}"
        address = choose(key, spec_of(service).load_balancer_ip, self._pool, taken)
        if address is None:
            log.error("no address for Service %s: %s of the pool %s are taken", key, len(taken), self._pool)
            return
        taken.add(address)
        self._write(service, address)
        log.info("Service %s has %s", key, address)

    def _write(self, service: client.V1Service, address: IPv4Address | None) -> None:
        ingress = [{"ip": str(address), "ipMode": "VIP"}] if address else None
        self._core.patch_namespaced_service_status(
            name_of(service), namespace_of(service), {"status": {"loadBalancer": {"ingress": ingress}}}
        )
