"""Cluster DNS: CoreDNS as a Deployment behind the Service kube-dns. It knows the cluster's names and no others."""

from __future__ import annotations

import hashlib

from lab.cluster.api import Manifest
from lab.paths import NetworkPlan

NAMESPACE = "kube-system"
IMAGE = "registry.k8s.io/coredns/coredns:v1.14.6"
_LABELS = {"k8s-app": "kube-dns"}
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

# Nothing is forwarded: a name from outside does not exist here, and an answer at once beats a time-out.
# It is a server of its own because CoreDNS asks its template before the cluster, whatever their order in the file.
COREFILE = """\
cluster.local:53 in-addr.arpa:53 {
    errors
    health :8080 {
        lameduck 2s
    }
    ready :8181
    kubernetes cluster.local in-addr.arpa {
        pods insecure
        ttl 5
    }
    prometheus :9153
}
.:53 {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def _digest(text: str) -> str:
    """Makes a changed configuration a changed Pod."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def manifests(plan: NetworkPlan) -> list[Manifest]:
    """All objects of cluster DNS, in the order in which they are applied."""
    return [_account(), _role(), _binding(), _configuration(), _service(plan), _deployment()]


def _named(kind: str, api_version: str, name: str, *, namespaced: bool = True) -> Manifest:
    namespace = {"namespace": NAMESPACE} if namespaced else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": _LABELS, **namespace}}


def _account() -> Manifest:
    return _named("ServiceAccount", "v1", "coredns")


def _role() -> Manifest:
    return {
        **_named("ClusterRole", "rbac.authorization.k8s.io/v1", "system:coredns", namespaced=False),
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }


def _binding() -> Manifest:
    return {
        **_named("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "system:coredns", namespaced=False),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": NAMESPACE}],
    }


def _configuration() -> Manifest:
    return {**_named("ConfigMap", "v1", "coredns"), "data": {"Corefile": COREFILE}}


def _service(plan: NetworkPlan) -> Manifest:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
        {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
    ]
    return {
        **_named("Service", "v1", "kube-dns"),
        "spec": {"clusterIP": str(plan.dns_address), "selector": _LABELS, "ports": ports},
    }


def _deployment() -> Manifest:
    container = {
        "name": "coredns",
        "image": IMAGE,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10, "failureThreshold": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {
        **_named("Deployment", "apps/v1", "coredns"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS, "annotations": {"inference-lab/corefile": _digest(COREFILE)}},
                "spec": {
                    "serviceAccountName": "coredns",
                    "priorityClassName": "system-cluster-critical",
                    # Its own resolver would be itself.
                    "dnsPolicy": "Default",
                    # Bound to no node: it goes on elsewhere while the control plane is drained.
                    "tolerations": [{"key": _CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                },
            },
        },
    }
