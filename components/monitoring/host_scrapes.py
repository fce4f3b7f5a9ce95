"""How Prometheus reads nodes and the control plane: scrapes in its own words, as one Secret.

Not by monitors: kubelets and API servers ask for the token of Prometheus's account, and a monitor can hand over no
file of its pod (`arbitraryFSAccessThroughSMs`), only a Secret with a token that never ends.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from components.monitoring import prometheus
from components.monitoring.permissions import in_cluster, in_namespace, rule
from components.scrape_target import POD_META, label_from
from floor import node_ports

NAME, KEY = "host-scrapes", "scrapes.yaml"
NODE_EXPORTER, KUBELET, CONTAINERS = "node-exporter", "kubelet", "cadvisor"
API_SERVER, ETCD, DNS = "apiserver", "etcd", "coredns"
CILIUM, HUBBLE = "cilium-agent", "hubble"
JOBS = (NODE_EXPORTER, KUBELET, CONTAINERS, API_SERVER, DNS)
"""Of every cluster. etcd's is of clusters alone whose machines this program configures."""
POD_NETWORK = (CILIUM, HUBBLE)
"""Of clusters whose Cilium serves metrics."""
_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN = {"credentials_file": f"{_ACCOUNT_FOLDER}/token"}
_NODE_META = "__meta_kubernetes_node"
_DNS_NAMESPACE, _DNS_PORT = "kube-system", 9153
_API_NAMESPACE = "default"
KEPT: Mapping[str, Sequence[str]] = {
    KUBELET: (
        "kubelet_certificate_manager_client_ttl_seconds",
        "kubelet_running_pods",
        "kubelet_volume_stats_available_bytes",
        "kubelet_volume_stats_capacity_bytes",
    ),
    CONTAINERS: ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"),
    API_SERVER: (
        "apiserver_current_inflight_requests",
        "apiserver_request_sli_duration_seconds_bucket",
        "apiserver_request_total",
    ),
    CILIUM: (
        "cilium_bpf_map_pressure",
        "cilium_drop_count_total",
        "cilium_unreachable_health_endpoints",
        "cilium_unreachable_nodes",
    ),
    HUBBLE: ("hubble_drop_total", "hubble_flows_processed_total", "hubble_lost_events_total"),
}
"""What is kept of a job whose parts have tens of thousands of series: what rules and dashboards ask for."""


def scrapes(*, etcd: bool, pod_network: bool = False) -> list[dict[str, Any]]:
    """Prometheus's `scrape_configs`. etcd, pod_network: whether its members, and Cilium's agents, serve metrics."""
    return [
        _of_nodes(NODE_EXPORTER, port=node_ports.NODE_EXPORTER),
        _of_nodes(KUBELET, **_kubelet("/metrics")),
        _of_nodes(CONTAINERS, **_kubelet("/metrics/cadvisor")),
        *([_of_nodes(ETCD, port=node_ports.ETCD, control_planes=True)] if etcd else []),
        *([_of_nodes(CILIUM, port=node_ports.CILIUM_AGENT)] if pod_network else []),
        *([_of_nodes(HUBBLE, port=node_ports.HUBBLE)] if pod_network else []),
        _scrape(
            API_SERVER,
            [{"role": "endpointslice", "namespaces": {"names": [_API_NAMESPACE]}}],
            [_keep("__meta_kubernetes_service_name", "kubernetes")],
            scheme="https",
            authorization=_TOKEN,
            # By address, which not every API server has in its certificate.
            tls_config={"ca_file": f"{_ACCOUNT_FOLDER}/ca.crt", "server_name": "kubernetes.default.svc"},
        ),
        _scrape(
            DNS,
            [
                {
                    "role": "pod",
                    "namespaces": {"names": [_DNS_NAMESPACE]},
                    "selectors": [{"role": "pod", "label": "k8s-app=kube-dns"}],
                }
            ],
            [
                _keep(f"{POD_META}_container_port_number", str(_DNS_PORT)),
                label_from(f"{POD_META}_name", "pod"),
                label_from(f"{POD_META}_node_name", "node"),
            ],
        ),
    ]


def host_scrapes(namespace: str, *, etcd: bool, pod_network: bool = False) -> dict[str, Any]:
    """The Secret that Prometheus's object names. Nothing in it is secret."""
    text = yaml.safe_dump(scrapes(etcd=etcd, pod_network=pod_network), sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "type": "Opaque",
        "data": {KEY: base64.b64encode(text.encode()).decode()},
    }


def host_permissions(namespace: str) -> list[dict[str, Any]]:
    """What Prometheus may read beyond pods of its targets: nodes and their figures, and where API servers are."""
    account = {"metadata": {"name": prometheus.ACCOUNT, "namespace": namespace}}
    figures = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    nodes = [rule("", ["nodes"]), rule("", ["nodes/metrics"], ("get",)), figures]
    services = [rule("", ["services", "pods"]), rule("discovery.k8s.io", ["endpointslices"])]
    return [
        *in_cluster(f"{namespace}-hosts", account, nodes),
        *in_namespace(f"{namespace}-hosts", _API_NAMESPACE, account, services),
        *in_namespace(f"{namespace}-hosts", _DNS_NAMESPACE, account, [rule("", ["pods"])]),
    ]


def _of_nodes(job: str, *, port: int, control_planes: bool = False, **more: Any) -> dict[str, Any]:
    """Each node at this port, whether anything answers there or not."""
    chosen = [_keep(f"{_NODE_META}_labelpresent_node_role_kubernetes_io_control_plane", "true")]
    # The node's address is found with the kubelet's port behind it.
    at_port = {
        "source_labels": ["__address__"],
        "regex": "(.+):[0-9]+",
        "target_label": "__address__",
        "replacement": f"$1:{port}",
    }
    labels = [*(chosen if control_planes else []), at_port, label_from(f"{_NODE_META}_name", "node")]
    return _scrape(job, [{"role": "node"}], labels, **more)


def _kubelet(path: str) -> dict[str, Any]:
    return {
        "port": node_ports.KUBELET,
        "scheme": "https",
        "metrics_path": path,
        "authorization": _TOKEN,
        # Talos's kubelets sign their certificates themselves.
        "tls_config": {"insecure_skip_verify": True},
    }


def _scrape(
    job: str, found_by: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    kept = KEPT.get(job)
    return {
        "job_name": job,
        # The operator limits what monitors name alone.
        "sample_limit": prometheus.MOST_SAMPLES,
        "body_size_limit": prometheus.MOST_BODY,
        **more,
        "kubernetes_sd_configs": list(found_by),
        "relabel_configs": [_in_own_words(entry) for entry in labels],
        **({"metric_relabel_configs": [_keep("__name__", "|".join(kept))]} if kept else {}),
    }


def _keep(label: str, pattern: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [label], "regex": pattern}


def _in_own_words(relabeling: Mapping[str, Any]) -> dict[str, Any]:
    """A monitor's fields have other names than Prometheus's own."""
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(field, field): value for field, value in relabeling.items()}
