"""The ledger: what each tenant used, and what it costs, in a database of the site."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pulumi

from components.component import Component
from components.gateway.usage_log import Shipping
from components.minted import mint, minted
from components.namespace import NamespaceHandle
from components.network_policies import allow_ingress
from components.placing import budget
from components.specs.usage import DedicatedGpus, UsageSpec, millionths
from components.tenants.callers import version_of
from components.tenants.pods import ServicePods, opaque_secret, service, two_pods
from services.ledger import variables

_LABELS = {"app.kubernetes.io/name": variables.SERVICE}
_PICO, _HOUR_S = 10**12, 3600
_SECRETS, _DATABASE, _PRICES = "/etc/secrets", "/etc/database", "/etc/prices"


def price_book(
    spec: UsageSpec,
    idle: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    served: Collection[str] | None = None,
    dedicated: Mapping[str, DedicatedGpus] = MappingProxyType({}),
) -> str:
    """The prices as the ledger reads them, as JSON: whole numbers, of millionths of the currency per million tokens.

    idle: by revision, what is billed of its GPUs where they stand idle (services.ledger.idle). served: what models may
    be called; a name of a client that is none of these is in no sum. dedicated: replicas by their revision, whose GPUs
    are billed by the hour where a version has a price of these.
    """
    versions = [
        {
            "from": version.begins,
            "models": {
                model: {
                    "input": millionths(prices.input),
                    "cached_input": millionths(prices.input if prices.cached_input is None else prices.cached_input),
                    "output": millionths(prices.output),
                }
                for model, prices in sorted(version.models.items())
            },
            "tiers": {tier: millionths(factor) for tier, factor in sorted(version.tiers.items())},
            **(_by_the_hour(version.gpu_hour, dedicated) if version.gpu_hour is not None and dedicated else {}),
        }
        for version in spec.prices
    ]
    more: dict[str, Any] = {"idle": {name: dict(gpus) for name, gpus in idle.items()}} if idle else {}
    more |= {} if served is None else {"served": sorted(served)}
    return json.dumps({"currency": spec.currency, "versions": versions, **more}, sort_keys=True)


def _by_the_hour(gpu_hour: float, dedicated: Mapping[str, DedicatedGpus]) -> dict[str, Any]:
    """Pico-units of the currency for a second of all GPUs of each, and whose tokens are free for it."""
    second = Fraction(repr(gpu_hour)) * _PICO / _HOUR_S
    billed = {
        revision: {"carried": 0, "price": int(own.gpus * second + Fraction(1, 2)), "callers": list(own.tenants)}
        for revision, own in sorted(dedicated.items())
    }
    free: dict[str, list[str]] = {}
    for own in dedicated.values():
        free[own.model] = sorted([*free.get(own.model, ()), *own.tenants])
    return {"dedicated": billed, "free": free}


def prices(
    namespace: str,
    spec: UsageSpec,
    idle: Mapping[str, Mapping[str, Any]],
    served: Collection[str],
    dedicated: Mapping[str, DedicatedGpus],
) -> dict[str, Any]:
    """The price book, under one name for good: the ledger reads it again when it changes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": variables.PRICES_CONFIG, "namespace": namespace},
        "data": {variables.PRICES_KEY: price_book(spec, idle, served, dedicated)},
    }


def deployment(namespace: str, *, image: str, spec: UsageSpec) -> dict[str, Any]:
    """Two pods, each of which takes rows and answers."""
    arguments = [
        "serve",
        f"--port={variables.DEFAULT_PORT}",
        f"--prices-file={_PRICES}/{variables.PRICES_KEY}",
        f"--database-url-file={_DATABASE}/{variables.DATABASE_KEY}",
        f"--writer-token-file={_SECRETS}/{variables.WRITER_KEY}",
        f"--operator-token-file={_SECRETS}/{variables.OPERATOR_KEY}",
        f"--keep-months={spec.keep_months}",
        f"--keep-traces-days={spec.keep_traces_days}",
        *([f"--watch-keys={json.dumps(spec.abuse.thresholds, sort_keys=True)}"] if spec.abuse else []),
    ]
    volumes = {
        _PRICES: {"name": "prices", "configMap": {"name": variables.PRICES_CONFIG}},
        _DATABASE: {"name": "database", "secret": {"secretName": spec.database_secret, "defaultMode": 0o440}},
        _SECRETS: {"name": "secrets", "secret": {"secretName": variables.TOKENS_SECRET, "defaultMode": 0o440}},
    }
    pods = ServicePods(
        name=variables.SERVICE,
        image=image,
        arguments=arguments,
        ports={"http": variables.DEFAULT_PORT},
        asked="http",
        ready={"periodSeconds": 5, "timeoutSeconds": 5},
        memory="128Mi",
        volumes=volumes,
        # It is ready while its database is, and requests are served meanwhile.
        annotations={"pulumi.com/skipAwait": "true"},
        # A pod reads a mounted file of a ConfigMap within a minute or two, and a price is to hold once `up` ends.
        versions={"prices": version_of(price_book(spec))},
    )
    return two_pods(namespace, pods)


@dataclass(frozen=True, kw_only=True)
class LedgerArgs:
    """Where rows are kept, and who writes them."""

    spec: UsageSpec
    image: str
    namespace: NamespaceHandle
    proxy_namespace: str
    """Of the Envoy pods."""
    networks: bool
    """As of Shipping."""
    revisions: bool
    """The same."""
    log_gib: int
    """The same."""
    idle: Mapping[str, Mapping[str, Any]]
    """As of price_book; the next day has it, so no pod starts again for it."""
    served: Collection[str]
    """The same."""
    dedicated: Mapping[str, DedicatedGpus]
    """The same."""
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class LedgerAccess:
    """How a part of the platform reads usage, of all tenants."""

    url: str
    secret: str
    key: str
    """Of the Secret: the operator's token."""

    @property
    def volume(self) -> dict[str, Any]:
        """The token, in a file that has the key's name."""
        items = [{"key": self.key, "path": self.key}]
        return {"name": "ledger", "secret": {"secretName": self.secret, "items": items, "defaultMode": 0o440}}


@dataclass(frozen=True, kw_only=True)
class LedgerHandle:
    """Envoy pods can start once `ready` is there; the ledger answers some time later, which nothing has to wait for."""

    shipping: Shipping
    reading: LedgerAccess
    ready: list[pulumi.Resource]


class Ledger(Component, token="ledger:Ledger"):
    """Two pods, their prices, the tokens of who writes and reads, and who reaches them."""

    def __init__(self, name: str, args: LedgerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec, space = args.spec, args.namespace.name
        needs = [args.namespace.ready, *args.needs]
        # Others cost nothing: who reads asks the cluster for them, and pods that write read them again.
        tokens = {
            key: minted(self, key, mint(f"{variables.SERVICE}-{key}"))
            for key in (variables.WRITER_KEY, variables.OPERATOR_KEY)
        }
        read = [
            self.child("secrets", opaque_secret(space, variables.TOKENS_SECRET, tokens), depends_on=needs),
            self.child("prices", prices(space, spec, args.idle, args.served, args.dedicated), depends_on=needs),
        ]
        of_writers = {variables.WRITER_KEY: tokens[variables.WRITER_KEY]}
        writer = opaque_secret(args.proxy_namespace, variables.TOKENS_SECRET, of_writers)
        ready = self.child("writer-token", writer, depends_on=needs)
        # By the API server's proxy too, which has no labels to name it by; the tokens decide.
        entry = [((), [variables.DEFAULT_PORT])]
        # Shippers find it there, and `sitectl usage` by the API server.
        self.child("service", service(space, variables.SERVICE, variables.DEFAULT_PORT), depends_on=needs)
        self.child("network-policy", allow_ingress(variables.SERVICE, space, _LABELS, entry), depends_on=needs)
        self.child("budget", budget(variables.SERVICE, space, _LABELS), depends_on=needs)
        self.child("pods", deployment(space, image=args.image, spec=spec), depends_on=[*needs, *read])
        address = f"http://{variables.SERVICE}.{space}.svc:{variables.DEFAULT_PORT}"
        shipping = Shipping(
            image=args.image,
            address=address,
            secret=variables.TOKENS_SECRET,
            networks=args.networks,
            revisions=args.revisions,
            log_gib=args.log_gib,
        )
        reading = LedgerAccess(url=address, secret=variables.TOKENS_SECRET, key=variables.OPERATOR_KEY)
        self.handle = LedgerHandle(shipping=shipping, reading=reading, ready=[ready])
        self.finish(service=variables.SERVICE)
