"""Logs of all pods: a collector on each node, and VictoriaLogs that keeps them, by its publisher's charts (ADR 66)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.addons.addon import Addon, AddonChart, AddonComponent, AddonContent, AddonRelease, AddonSite
from components.addons.trusted_roots import trusted_roots
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.placing import Placing, placed
from components.scrape_target import NODE_LABEL, ScrapeTarget
from components.specs.logs import FULL_PERCENT, TOKEN_KEY, LogsSpec
from floor import namespaces

NAMESPACE = namespaces.LOGS
STORE, COLLECTOR = "log-store", "log-collector"
STORE_PODS = {"app.kubernetes.io/instance": STORE}
COLLECTOR_PODS = {"app.kubernetes.io/instance": COLLECTOR}
STORE_PORT, _COLLECTOR_PORT = 9428, 9429
# What waits on a node's disk for a store that does not answer; then the oldest goes. It is compressed.
_WAITING = "2GB"
# What the collector reads, and no other folder of the host: in /var/lib, its chart's own choice, are Secrets of pods.
_READ = {"pod-logs": "/var/log/pods", "links": "/var/log/containers"}
_TOKEN, _ROOTS = "/etc/log-token", "/etc/log-roots"
# No figure of a site. A collector holds some blocks of each file, and the store what queries ask for.
_SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
_STORE = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
# Both have buffers for each core that they see, and a collector sends a block a second for each. By 3 MB of lines a
# second, one that sees 224 cores took 330 MB and sent 185 blocks a second (v1.52.2); more than four are of no use.
_THREADS = {"name": "GOMAXPROCS", "value": "4"}
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def store_values(spec: LogsSpec, storage_class: str, placing: Placing) -> dict[str, Any]:
    """Values of the store's chart. A Deployment: its claim can grow, which one of a StatefulSet cannot."""
    return {
        "printNotes": False,
        # It asks the API server nothing.
        "serviceAccount": {"create": True, "automountToken": False},
        "server": {
            "fullnameOverride": STORE,
            "mode": "deployment",
            "retentionPeriod": f"{spec.keep_days}d",
            "retentionMaxDiskUsagePercent": str(FULL_PERCENT),
            # An address of its own: the name of a headless Service is unknown while the store starts, and for a while.
            "service": {"clusterIP": ""},
            "persistentVolume": {"size": f"{spec.volume_gib}Gi", "storageClassName": storage_class},
            "resources": _STORE,
            "env": [_THREADS],
            "securityContext": _CONFINED,
            **placed(placing),
        },
    }


def collector_values(spec: LogsSpec, roots: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Values of the collector's chart: on every node, whatever its taints. roots: for a store of the site's."""
    own = spec.system == "victoria_logs"
    sent = {"url": f"http://{STORE}.{NAMESPACE}.svc:{STORE_PORT}" if own else str(spec.address)}
    sent |= {"maxDiskUsagePerURL": _WAITING, **({} if own else {"format": spec.form})}
    mounts = [("token", _TOKEN, {"secret": {"secretName": spec.token_secret, "optional": True}})]
    mounts = mounts if spec.token_secret else []
    trusted = trusted_roots("log-roots", NAMESPACE, roots or {}) if roots and not own else None
    if spec.token_secret:
        sent["bearerTokenFile"] = f"{_TOKEN}/{TOKEN_KEY}"
    if trusted:
        mounts.append(("roots", _ROOTS, {"configMap": {"name": trusted["metadata"]["name"]}}))
    return {
        "fullnameOverride": COLLECTOR,
        "remoteWrite": [sent],
        "tolerations": [{"operator": "Exists"}],
        "resources": _SMALL,
        # Root, whom the files of containers belong to, without a right of root's beyond that.
        "securityContext": _CONFINED,
        "defaultVolumes": [{"name": name, "hostPath": {"path": path}} for name, path in _READ.items()],
        "defaultVolumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in _READ.items()],
        "extraVolumes": [{"name": name, **source} for name, _, source in mounts],
        "extraVolumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path, _ in mounts],
        "env": [_THREADS, *([{"name": "SSL_CERT_DIR", "value": _ROOTS}] if trusted else [])],
        **({"extraObjects": [trusted]} if trusted else {}),
    }


def network_policies(spec: LogsSpec, scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """Collectors reach the store, which reaches nothing and has no login: others need a port forward."""
    collectors = allow_ingress(COLLECTOR, NAMESPACE, COLLECTOR_PODS, read_by(scrapers, _COLLECTOR_PORT))
    if spec.system != "victoria_logs":
        return [collectors]
    asked = [([peer(COLLECTOR_PODS)], [STORE_PORT]), *read_by(scrapers, STORE_PORT)]
    return [collectors, allow_ingress(STORE, NAMESPACE, STORE_PODS, asked, egress=[])]


def content(site: AddonSite) -> AddonContent:
    """Works when Helm has seen the store ready, where the site has it here, and a collector on each node."""
    spec = site.spec(LogsSpec)
    releases = []
    if spec.system == "victoria_logs":
        values = store_values(spec, site.volume_class, site.placing)
        releases.append(AddonRelease(name=STORE, chart=site.charts["victoria_logs"], values=values))
    collectors = collector_values(spec, site.trusted_roots)
    releases.append(AddonRelease(name=COLLECTOR, chart=site.charts["victoria_logs_collector"], values=collectors))
    return AddonContent(releases=releases, network_policies=network_policies(spec, site.scrapers))


LOG_COLLECTOR = Addon(
    key="log_collector",
    switch="logs.collected",
    on=True,
    namespace=NAMESPACE,
    section="logs",
    charts=(
        AddonChart(
            name="victoria_logs_collector",
            release=COLLECTOR,
            uninstalled="lines of pods are lost with their pods again; those that were sent stay in the store",
            upgraded="its pods restart, one node at a time, and go on where they were: no line is lost",
        ),
    ),
    targets=(
        ScrapeTarget(
            name="log-collectors",
            job="log-collectors",
            namespace=NAMESPACE,
            pods=COLLECTOR_PODS,
            port=_COLLECTOR_PORT,
            labels=[NODE_LABEL],
        ),
    ),
    component=AddonComponent(
        name="logs",
        resource_type="logs:Logs",
        # The collector mounts folders of its node.
        pod_security="privileged",
        content=content,
        needs=("longhorn",),
        reads_secrets=True,
    ),
)

LOG_STORE = Addon(
    key="log_store",
    switch="logs.system",
    on="victoria_logs",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="victoria_logs",
            release=STORE,
            uninstalled="every line that it keeps is deleted with its volume",
            upgraded="its pod restarts; lines wait on the nodes meanwhile, and none can be looked up",
        ),
    ),
    targets=(ScrapeTarget(name=STORE, job=STORE, namespace=NAMESPACE, pods=STORE_PODS, port=STORE_PORT),),
)
