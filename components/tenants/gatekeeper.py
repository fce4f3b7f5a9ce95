"""The service that decides about each caller: Envoy asks it before anything else, and lets nothing pass without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.callers import STATE_PORT
from components.component import Component
from components.gateway.connections import Connection
from components.gateway.envoy_names import CHECKED, DECISIONS
from components.gateway.request_log import PROMPT_ID
from components.minted import mint, minted
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.placing import budget
from components.tenants.callers import CallersHandle
from components.tenants.directory import DIRECTORY_URL, SECRETS_FOLDER, shared_secrets
from components.tenants.ledger import LedgerAccess
from components.tenants.pods import ServicePods, opaque_secret, two_pods
from floor.headers import CLIENT_HEADER, TENANT_HEADER
from services.directory import variables

GATEKEEPER = "gatekeeper"
GATEKEEPER_PODS = {"app.kubernetes.io/name": GATEKEEPER}
_DECISIONS_PORT = 9001
# Until proxies have learned that a pod is leaving, and then for requests that wait.
_ENDING_S = 30
_TENANTS, _KEYS, _SALT, _LEDGER = "/etc/tenants", "/etc/keys", "/etc/salt", "/etc/ledger"
_KEPT = "/var/cache/gatekeeper"
_SALT_SECRET, _SALT_KEY = "gatekeeper-salt", "salt"


def gatekeeper_connection(namespace: str, parallel: int) -> Connection:
    """How Envoy reaches it. parallel: requests that one Envoy pod carries at once, each of which may wait for it."""
    authority = f"{GATEKEEPER}.{namespace}.svc:{_DECISIONS_PORT}"
    # Below the time for a decision, so that the other one is asked before that ends.
    return Connection(name=f"inference-platform/{GATEKEEPER}", authority=authority, parallel=parallel, connect_s=1)


def deployment(
    namespace: str,
    *,
    image: str,
    known: CallersHandle,
    directory: bool,
    counters: str | None,
    refuse_uncounted: bool,
    ledger: LedgerAccess | None,
    networks: bool,
) -> dict[str, Any]:
    """directory: whether the site has one. counters, ledger: where parallel requests and a month's use are counted.

    networks: whether it names the network of each request.
    """
    arguments = [
        f"--listen=:{_DECISIONS_PORT}",
        f"--listen-state=:{STATE_PORT}",
        f"--tenants-file={_TENANTS}/tenants.json",
        f"--keys-file={_KEYS}/keys.json",
        f"--client-header={CLIENT_HEADER}",
        f"--tenant-header={TENANT_HEADER}",
        f"--decided={DECISIONS}",
        f"--checked={CHECKED}",
        f"--salt-file={_SALT}/{_SALT_KEY}",
        *(["--networks"] if networks else []),
        *([f"--counters={counters}", f"--refuse-uncounted={str(refuse_uncounted).lower()}"] if counters else []),
    ]
    volumes = {
        _TENANTS: {"name": "tenants", "configMap": {"name": known.tenants}},
        _KEYS: {"name": "keys", "secret": {"secretName": known.keys, "defaultMode": 0o440}},
        _SALT: {"name": "salt", "secret": {"secretName": _SALT_SECRET, "defaultMode": 0o440}},
        _KEPT: {"name": "kept", "emptyDir": {"sizeLimit": "64Mi"}},
    }
    if directory:
        arguments += [
            f"--directory={DIRECTORY_URL.format(namespace=namespace)}",
            f"--peers={GATEKEEPER}.{namespace}.svc:{STATE_PORT}",
            f"--kept-file={_KEPT}/directory.json",
            f"--named={':'.join(PROMPT_ID)}",
            f"--pepper-file={SECRETS_FOLDER}/{variables.PEPPER_KEY}",
            f"--token-file={SECRETS_FOLDER}/{variables.READER_KEY}",
        ]
        volumes |= {SECRETS_FOLDER: shared_secrets(variables.PEPPER_KEY, variables.READER_KEY)}
    if ledger:
        arguments += [f"--ledger={ledger.url}", f"--ledger-token-file={_LEDGER}/{ledger.key}"]
        volumes |= {_LEDGER: ledger.volume}
    pods = ServicePods(
        name=GATEKEEPER,
        image=image,
        arguments=arguments,
        ports={"decisions": _DECISIONS_PORT, "state": STATE_PORT},
        asked="state",
        ready={"periodSeconds": 2},
        memory="64Mi",
        volumes=volumes,
        variables={"GOMEMLIMIT": "450MiB"},
        settings={"terminationGracePeriodSeconds": _ENDING_S},
        versions=known.versions,
    )
    return two_pods(namespace, pods)


def service(namespace: str) -> dict[str, Any]:
    """Without an address of its own: Envoy learns out of DNS which ones are ready, and leaves one that ends."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": GATEKEEPER, "namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "clusterIP": "None",
            "selector": GATEKEEPER_PODS,
            "ports": [
                {"name": "decisions", "port": _DECISIONS_PORT, "targetPort": "decisions", "protocol": "TCP"},
                {"name": "state", "port": STATE_PORT, "targetPort": "state", "protocol": "TCP"},
            ],
        },
    }


@dataclass(frozen=True, kw_only=True)
class GatekeeperArgs:
    """What it decides by, and who asks it."""

    known: CallersHandle
    directory: bool
    """Whether the site has one; its secrets are among `needs` then."""
    image: str
    namespace: NamespaceHandle
    proxies: Peer
    scrapers: Sequence[Peer]
    counters: str | None
    """Host and port of the store in which parallel requests are counted, where any are."""
    refuse_uncounted: bool
    """What becomes of limited requests while it is away."""
    ledger: LedgerAccess | None
    """Where a month's use is counted; None where no tenant has a limit of it."""
    networks: bool
    """Whether keys are watched by the networks that they come from."""
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class GatekeeperHandle:
    """Decisions are made once `ready` is there."""

    ready: list[pulumi.Resource]


class Gatekeeper(Component, token="gatekeeper:Gatekeeper"):
    """Two pods, what they know, and who reaches them."""

    def __init__(self, name: str, args: GatekeeperArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace.name
        needs = [args.namespace.ready, *args.known.ready, *args.needs]
        pods = deployment(
            space,
            image=args.image,
            known=args.known,
            directory=args.directory,
            counters=args.counters,
            refuse_uncounted=args.refuse_uncounted,
            ledger=args.ledger,
            networks=args.networks,
        )
        entry = [
            ([args.proxies], [_DECISIONS_PORT]),
            ([peer(GATEKEEPER_PODS)], [STATE_PORT]),
            *read_by(args.scrapers, STATE_PORT),
        ]
        # What each tenant's part of the engines' caches is made of.
        # Another one costs what they have cached, and no more: it need not outlive a lost state.
        salt = minted(self, "salt", mint("gatekeeper-salt"))
        kept = self.child("salt", opaque_secret(space, _SALT_SECRET, {_SALT_KEY: salt}), depends_on=needs)
        made = [
            self.child("service", service(space), depends_on=needs),
            self.child("network-policy", allow_ingress(GATEKEEPER, space, GATEKEEPER_PODS, entry), depends_on=needs),
            self.child("budget", budget(GATEKEEPER, space, GATEKEEPER_PODS), depends_on=needs),
            self.child("pods", pods, depends_on=[*needs, kept]),
        ]
        self.handle = GatekeeperHandle(ready=list(made))
        self.finish(service=GATEKEEPER)
