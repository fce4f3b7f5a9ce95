"""Checks of `tests/live` that are skipped on the lab, and a part of the reason that each states."""

from __future__ import annotations

# What of the platform the lab has, or not; with monitoring, tests/lab/site/test_live_monitoring.py plants their faults.
_NO_CHART = (
    "gpu operator",
    "device plugin",
    "dcgm exporter",
    "network operator",
    "longhorn",
    "metallb",
    "external secrets",
    "keda",
    "node exporter",
    "grafana",
    "leader worker set",
    "cloudnative pg",
    "barman cloud",
    "victoria logs",
    "victoria logs collector",
    "external dns",
)
_NO_SPACE = (
    "gpu-operator",
    "nvidia-network-operator",
    "longhorn-system",
    "metallb-system",
    "external-secrets",
    "keda",
    "inference-hosts",
    "lws-system",
    "cnpg-system",
    "inference-logs",
    "external-dns",
)
_DATABASE = "inference-database"
OF_STORAGE_AND_ADDRESSES = {
    "longhorn s volumes have all their copies",
    "longhorn can store on its nodes",
    "metallb has the site s pool and announces it",
    "each node with gpus offers its rdma devices",
}
OF_PORTAL = {
    "a stranger is sent to the issuer",
    "the portal s pages run nothing of others",
    "no stranger reads the portal s metrics",
    "the portal s certificate is of its name",
}
OF_LEDGER = {
    "a request has its row in time",
    "no usage waits at the gateway",
    "each bill is what its rows cost",
}
OF_MONITORING = {
    "what rules and dashboards ask for is measured[alertmanager]",
    "what rules and dashboards ask for is measured[prometheus operator]",
    "what measures is ready with the pinned images",
    "every pod that is measured answers",
    "every rule is loaded and computed",
    "prometheus sends alerts to every alertmanager",
    "the watchdog fires as far as alertmanager",
}
IN_MONITORING = {
    "pods refuse what no policy lets in[inference-monitoring]",
    "a namespace admits no pod with more rights[inference-monitoring]",
}
_NOT_MEASURED = ("dcgm exporter", "longhorn", "cilium agent", "hubble", "log collector", "log store", "external dns")
# The faults of these are in tests/unit/live/test_live_addons.py and test_live_fabric.py.
NOT_INSTALLED = {
    **{f"what rules and dashboards ask for is measured[{part}]": "monitoring.system is none" for part in _NOT_MEASURED},
    "every gpu has joined the fabric of its node": "monitoring.system is none",
    # Its faults are in tests/unit/live/test_live_metrics.py.
    "each node sends the lines of its pods": "monitoring.system is none",
    # The lab's GPUs are emulated, and no DCGM reads them. Its faults are in tests/unit/live/test_live_gpu_faults.py.
    "no gpu reports an uncorrected fault": "monitoring.system is none",
    **{f"the release is deployed in its pinned version[{chart}]": "does not let the program" for chart in _NO_CHART},
    # Grafana's alone, of charts.
    "an addon s pods are ready[inference-monitoring]": "does not let the program",
    **{f"an addon s pods are ready[{space}]": "does not let the program" for space in _NO_SPACE},
    **{
        f"{check}[{space}]": "does not let the program"
        for check in ("pods refuse what no policy lets in", "a namespace admits no pod with more rights")
        for space in (*_NO_SPACE, _DATABASE)
    },
    # Its faults are in tests/unit/live/test_live_portal.py.
    **dict.fromkeys(OF_PORTAL, "the site's file has no portal"),
    # The same in test_live_ledger.py there.
    **dict.fromkeys(OF_LEDGER, "the site's file has no ledger of usage"),
    "the audit of keys is whole": "names no database for a directory of keys",
    **dict.fromkeys(OF_STORAGE_AND_ADDRESSES, "does not let the program install"),
    "each machine that announces has its sessions and announces an address": "announces no address by BGP",
    "each secret of the store is there and refreshed": "lets no store fill a Secret",
}
# Of the checked-in site. Their faults are in tests/unit/live too.
UNCERTIFIED = {
    "the release is deployed in its pinned version[cert manager]": "does not let the program",
    "an addon s pods are ready[cert-manager]": "does not let the program",
    "pods refuse what no policy lets in[cert-manager]": "does not let the program",
    "a namespace admits no pod with more rights[cert-manager]": "does not let the program",
    "the gateway s certificate is issued by whom the site names": "lets no cert-manager make the certificate",
    "the endpoint s certificate is valid for two weeks": "the endpoint is http",
}
# Its fault is in tests/unit/live/test_live_node_weights.py.
ON_NODES = {"every gpu node has the weights of every model": "the site's weights are on shared volumes"}
UNMEASURED = {
    **dict.fromkeys(OF_MONITORING, "monitoring.system is none"),
    **dict.fromkeys(IN_MONITORING, "does not let the program make inference-monitoring"),
}
SKIPPED = {**NOT_INSTALLED, **ON_NODES, **UNMEASURED, **UNCERTIFIED}
