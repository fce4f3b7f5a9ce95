"""`python -m lab.cluster.assigner`: a small version of a site's load balancer, storage and CNI, and of its operator.

Addresses of Services, volumes of claims, who may reach whom by NetworkPolicies, and the operator's Secrets: the CA of
the gateway, the addresses of databases.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from lab import kubeconfigs
from lab.cluster import credentials, gateway_ca, operator_database
from lab.cluster.addresses import AddressController
from lab.cluster.api import Manifest
from lab.cluster.operator_secret import OperatorSecretController
from lab.cluster.policies import NetworkPolicyController
from lab.cluster.volumes import VolumeController
from lab.cluster.watching import Listing, changes
from lab.paths import Lab

ACCOUNT = "lab-assigner"
_RESYNC_S = 60
_RETRY_S = 1.0

log = logging.getLogger(__name__)


def role() -> Manifest:
    """What the controllers may do."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ACCOUNT},
        "rules": [
            {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
            {
                "apiGroups": [""],
                "resources": ["persistentvolumes"],
                "verbs": ["list", "watch", "create", "patch", "delete"],
            },
            {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["persistentvolumeclaims/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
            {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get"]},
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [gateway_ca.NAME, *operator_database.DATABASES],
                "verbs": ["list", "watch", "create", "patch"],
            },
        ],
    }


def keep(
    reconcile: Callable[[], None], listings: list[Listing], stopping: threading.Event, *, retry_s: float = _RETRY_S
) -> list[threading.Thread]:
    """Start threads that run `reconcile` after every change of what `listings` list, one run at a time.

    One that fails is tried again after `retry_s`.
    """
    changed = threading.Event()

    def watch_one(listing: Listing) -> None:
        for _ in changes(listing, resync_s=_RESYNC_S, stopping=stopping):
            changed.set()

    def work() -> None:
        while not stopping.is_set():
            changed.wait()
            changed.clear()
            try:
                reconcile()
            except (client.ApiException, HTTPError, OSError) as error:
                # A conflict, or the API server is away: read the cluster again.
                log.warning("again in %.0f s: %s", retry_s, str(error).splitlines()[0])
                stopping.wait(retry_s)
                changed.set()

    threads = [threading.Thread(target=watch_one, args=(listing,), daemon=True) for listing in listings]
    threads.append(threading.Thread(target=work, daemon=True))
    for thread in threads:
        thread.start()
    return threads


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    lab = Lab.from_environment()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    own = kubeconfigs.read(credentials.kubeconfig(lab, ACCOUNT))
    connection = config.new_client_from_config_dict(own, persist_config=False)
    core = client.CoreV1Api(connection)
    keep(
        AddressController(connection, lab.network.load_balancers).reconcile,
        [core.list_service_for_all_namespaces],
        stopping,
    )
    keep(
        VolumeController(connection, lab.volumes).reconcile,
        [core.list_persistent_volume, core.list_persistent_volume_claim_for_all_namespaces],
        stopping,
    )
    keep(
        NetworkPolicyController(connection, lab.network.pods, lab.bin / "nft").reconcile,
        [
            core.list_pod_for_all_namespaces,
            core.list_namespace,
            client.NetworkingV1Api(connection).list_network_policy_for_all_namespaces,
        ],
        stopping,
    )
    written: dict[str, Callable[[], Manifest | None]] = {
        gateway_ca.NAME: partial(gateway_ca.wanted, lab),
        **{name: partial(operator_database.wanted, lab, name) for name in operator_database.DATABASES},
    }
    for name, wanted in written.items():
        operator = OperatorSecretController(connection, name, wanted)
        keep(operator.reconcile, operator.listings, stopping)
    stopping.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
