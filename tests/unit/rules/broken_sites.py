"""A small site that keeps every rule, and for each rule a way to break it and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from policy.model import HIDDEN, Resource, SiteFacts

Bodies = dict[str, dict[str, Any]]
LABELS = {"app.kubernetes.io/name": "model-server", "app.kubernetes.io/instance": "chat"}
FACTS = SiteFacts(name="test", load_s={"chat": 600.0})
SOVEREIGN = SiteFacts(name="test", sovereign=True, registries=("registry.internal",), load_s={"chat": 600.0})
LOCKED = SiteFacts(
    name="test", locked_images=(f"registry.internal/vllm:v0.32.0@sha256:{'0' * 64}",), load_s={"chat": 600.0}
)


def bodies() -> Bodies:
    """Bodies by a short name of their own."""
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5, "failureThreshold": 300}
    gpus = {"nvidia.com/gpu": "8"}
    container = {
        "name": "engine",
        "image": "registry.internal/vllm/vllm-openai:v0.32.0",
        "args": ["model", "--prefill-time-per-token=15us"],
        "env": [{"name": "HF_HOME", "value": "/models/hub"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "resources": {"limits": gpus, "requests": gpus},
        "startupProbe": probe,
        "readinessProbe": probe,
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"sleep": {"seconds": 10}}},
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 620,
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname"}],
        "containers": [container],
        "volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "chat-weights"}}],
    }
    space = {"name": "chat", "namespace": "models"}
    return {
        "namespace": {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "models", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
        },
        "deny": {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "deny-ingress", "namespace": "models"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        },
        "deployment": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**space, "labels": LABELS},
            "spec": {
                "replicas": 2,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "template": {"metadata": {"labels": LABELS}, "spec": pod},
            },
        },
        "budget": {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": space,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
        },
        "folder of nodes": {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "chat-node"},
            "spec": {"local": {"path": "/var/mnt/weights"}, "claimRef": {"namespace": "models", "name": "chat-node"}},
        },
        "claim": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "chat-weights", "namespace": "models"},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}},
        },
        "secret": {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": "models"},
            "stringData": {"acme.laptop": HIDDEN},
        },
        "role": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": space,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
        "gateway": {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "inference", "namespace": "models"},
            "spec": {"listeners": [{"port": 443, "protocol": "HTTPS"}]},
        },
        "policy": {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "SecurityPolicy",
            "metadata": {"name": "tenants", "namespace": "models"},
            "spec": {
                "targetRefs": [{"kind": "Gateway", "name": "inference"}],
                "apiKeyAuth": {"credentialRefs": [{"name": "keys"}]},
                "authorization": {"defaultAction": "Deny", "rules": []},
            },
        },
        "pool": {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": space,
            "spec": {},
        },
        "route": {
            "apiVersion": "aigateway.envoyproxy.io/v1beta1",
            "kind": "AIGatewayRoute",
            "metadata": space,
            "spec": {
                "rules": [
                    {"backendRefs": [{"kind": "InferencePool", "name": "chat"}], "timeouts": {"request": "3600s"}}
                ]
            },
        },
        "service": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": space,
            "spec": {"ports": [{"port": 80}]},
        },
    }


def resources(objects: Bodies, *, protected: bool = True) -> list[Resource]:
    """As the program would declare them."""
    return [
        Resource(
            type=f"kubernetes:{body['apiVersion'] if '/' in body['apiVersion'] else 'core/v1'}:{body['kind']}",
            name=name,
            body=body,
            protected=protected,
        )
        for name, body in copy.deepcopy(objects).items()
    ]


def _pod(objects: Bodies) -> dict[str, Any]:
    spec: dict[str, Any] = objects["deployment"]["spec"]["template"]["spec"]
    return spec


def _add_volume(objects: Bodies, source: dict[str, Any]) -> None:
    objects["volume"] = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": source}


def _add_policy(objects: Bodies, target: dict[str, str]) -> None:
    objects["second policy"] = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": "second", "namespace": "models"},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", **target}]},
    }


def _container(objects: Bodies) -> dict[str, Any]:
    first: dict[str, Any] = _pod(objects)["containers"][0]
    return first


@dataclass(frozen=True, kw_only=True)
class Broken:
    """How a rule is broken, and a part of the message."""

    change: Callable[[Bodies], object]
    says: str
    facts: SiteFacts = FACTS
    protected: bool = True


# (rule, what is special about the case) -> case
BROKEN: Mapping[tuple[str, str], Broken] = {
    ("image-pinned", "latest"): Broken(
        change=lambda objects: _container(objects).update(image="vllm/vllm-openai:latest"), says="no exact version"
    ),
    ("image-pinned", "no tag"): Broken(
        change=lambda objects: _container(objects).update(image="registry:5000/vllm"), says="'registry:5000/vllm'"
    ),
    ("image-pinned", "one number"): Broken(
        change=lambda objects: _container(objects).update(image="vllm:24"), says="no exact version"
    ),
    ("image-locked", "another tag"): Broken(
        change=lambda objects: _container(objects).update(image=f"registry.internal/vllm:v0.33.0@sha256:{'0' * 64}"),
        says="which is not in images.lock",
        facts=LOCKED,
    ),
    ("image-locked", "no digest"): Broken(
        change=lambda objects: _container(objects).update(image="registry.internal/vllm:v0.32.0"),
        says="which is not in images.lock",
        facts=LOCKED,
    ),
    ("gpu-limits", "requests fewer"): Broken(
        change=lambda objects: _container(objects)["resources"].update(requests={"nvidia.com/gpu": "4"}),
        says="requests 4 GPUs and is limited to 8",
    ),
    ("gpu-limits", "no limit"): Broken(
        change=lambda objects: _container(objects).update(resources={"requests": {"nvidia.com/gpu": "8"}}),
        says="limited to None",
    ),
    ("gpu-limits", "slices"): Broken(
        change=lambda objects: _container(objects).update(
            resources={"limits": {"nvidia.com/mig-1g.18gb": "1"}, "requests": {"nvidia.com/mig-1g.18gb": "2"}}
        ),
        says="requests 2 GPUs and is limited to 1",
    ),
    ("requests-set", "none"): Broken(
        change=lambda objects: _pod(objects).update(initContainers=[{"name": "wait", "image": "busybox:1.37.0"}]),
        says="container wait requests nothing",
    ),
    ("probes-fit", "too short"): Broken(
        change=lambda objects: _container(objects).update(startupProbe={"periodSeconds": 5, "failureThreshold": 100}),
        says="gives up after 500 s, and getting the weights takes 600 s",
    ),
    ("probes-fit", "none"): Broken(
        change=lambda objects: _container(objects).pop("livenessProbe"), says="has no livenessProbe"
    ),
    ("grace-outlasts-prestop", ""): Broken(
        change=lambda objects: _pod(objects).update(terminationGracePeriodSeconds=10),
        says="preStop sleeps 10 s of a grace period of 10 s",
    ),
    ("no-host-access", "path"): Broken(
        change=lambda objects: _pod(objects)["volumes"].append({"name": "host", "hostPath": {"path": "/var"}}),
        says="hostPath /var",
    ),
    ("no-host-access", "volume of a host's path"): Broken(
        change=lambda objects: _add_volume(objects, {"hostPath": {"path": "/var"}}), says="hostPath /var"
    ),
    ("no-host-access", "volume of a node for all claims"): Broken(
        change=lambda objects: _add_volume(objects, {"local": {"path": "/var/mnt/weights"}}),
        says="folder /var/mnt/weights for any claim that asks for one",
    ),
    ("no-host-access", "network"): Broken(
        change=lambda objects: _pod(objects).update(hostNetwork=True), says="hostNetwork"
    ),
    ("no-host-access", "privileged"): Broken(
        change=lambda objects: _container(objects).update(securityContext={"privileged": True}),
        says="privileged container engine",
    ),
    ("no-host-access", "capability"): Broken(
        change=lambda objects: _container(objects).update(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        says="capability SYS_ADMIN",
    ),
    ("no-plaintext-secret", "Secret"): Broken(
        change=lambda objects: objects["secret"]["stringData"].update({"acme.laptop": "sk-1"}),
        says="stringData holds acme.laptop in plain text",
    ),
    ("no-plaintext-secret", "variable"): Broken(
        change=lambda objects: _container(objects)["env"].append({"name": "HF_TOKEN", "value": "hf-1"}),
        says="is given HF_TOKEN in plain text",
    ),
    ("no-plaintext-secret", "argument"): Broken(
        change=lambda objects: _container(objects)["args"].append("--api-key=abc"),
        says="is given --api-key in plain text",
    ),
    ("service-account-token", "mounted by default"): Broken(
        change=lambda objects: _pod(objects).pop("automountServiceAccountToken"), says="default service account"
    ),
    ("service-account-token", "of the default account by name"): Broken(
        change=lambda objects: _pod(objects).update(serviceAccountName="default", automountServiceAccountToken=True),
        says="default service account",
    ),
    ("namespace-denies-ingress", "egress alone"): Broken(
        change=lambda objects: objects["deny"]["spec"].update(policyTypes=["Egress"]),
        says="lets every pod of the cluster reach",
    ),
    ("namespace-denies-ingress", "a policy that allows"): Broken(
        change=lambda objects: objects["deny"]["spec"].update(ingress=[{}]), says="lets every pod of the cluster reach"
    ),
    ("namespace-denies-ingress", "for some pods alone"): Broken(
        change=lambda objects: objects["deny"]["spec"].update(podSelector={"matchLabels": LABELS}),
        says="lets every pod of the cluster reach",
    ),
    ("disruption-budget", "none"): Broken(
        change=lambda objects: objects["budget"]["spec"]["selector"].update(matchLabels={"app": "other"}),
        says="no PodDisruptionBudget selects",
    ),
    ("disruption-budget", "other namespace"): Broken(
        change=lambda objects: objects["budget"]["metadata"].update(namespace="elsewhere"),
        says="no PodDisruptionBudget selects",
    ),
    ("disruption-budget", "lets nothing go"): Broken(
        change=lambda objects: objects["budget"]["spec"].update(maxUnavailable=0), says="no node can ever be drained"
    ),
    ("disruption-budget", "lets all go"): Broken(
        change=lambda objects: objects["budget"]["spec"].update(maxUnavailable=2), says="lets all 2 replicas go at once"
    ),
    ("spread", ""): Broken(
        change=lambda objects: _pod(objects).pop("topologySpreadConstraints"), says="may share one node"
    ),
    ("update-leaves-a-replica", "recreate"): Broken(
        change=lambda objects: objects["deployment"]["spec"].update(strategy={"type": "Recreate"}),
        says="stops all of its replicas",
    ),
    ("update-leaves-a-replica", "all at once"): Broken(
        change=lambda objects: objects["deployment"]["spec"]["strategy"].update(rollingUpdate={"maxUnavailable": 2}),
        says="stops all of its replicas",
    ),
    ("shared-volume", ""): Broken(
        change=lambda objects: objects["claim"]["spec"].update(accessModes=["ReadWriteOnce"]), says="ReadWriteOnce"
    ),
    ("protect-stateful", ""): Broken(change=lambda _: None, says="its data goes with it", protected=False),
    ("protect-stateful", "permission denied"): Broken(
        change=lambda objects: objects["claim"]["metadata"].update(
            annotations={"inference-platform/disposable": "false"}
        ),
        says="its data goes with it",
        protected=False,
    ),
    ("gateway-authenticates", "no policy"): Broken(
        change=lambda objects: objects["policy"]["spec"].update(targetRefs=[]), says="asks its callers for a key"
    ),
    ("gateway-authenticates", "allows by default"): Broken(
        change=lambda objects: objects["policy"]["spec"].update(authorization={"defaultAction": "Allow"}),
        says="does not deny by default",
    ),
    ("security-at-the-gateway", "a route's own"): Broken(
        change=lambda objects: _add_policy(objects, {"kind": "HTTPRoute", "name": "chat"}),
        says="is attached to HTTPRoute chat",
    ),
    ("security-at-the-gateway", "a listener's own"): Broken(
        change=lambda objects: _add_policy(objects, {"kind": "Gateway", "name": "inference", "sectionName": "https"}),
        says="is attached to Gateway inference",
    ),
    ("route-timeouts", ""): Broken(
        change=lambda objects: objects["route"]["spec"]["rules"][0].pop("timeouts"), says="cuts streams after 60 s"
    ),
    ("route-leads-somewhere", ""): Broken(
        change=lambda objects: objects["route"]["spec"]["rules"][0]["backendRefs"][0].update(name="gone"),
        says="leads to InferencePool models/gone",
    ),
    ("namespace-security", "none"): Broken(
        change=lambda objects: objects["namespace"]["metadata"].pop("labels"), says="sets no level of pod security"
    ),
    ("namespace-security", "privileged"): Broken(
        change=lambda objects: objects["namespace"]["metadata"].update(
            labels={"pod-security.kubernetes.io/enforce": "privileged"}
        ),
        says="lets privileged pods run",
    ),
    ("no-wildcard-permissions", ""): Broken(
        change=lambda objects: objects["role"]["rules"][0].update(verbs=["*"]), says="grants everything in verbs"
    ),
    ("sovereign-registries", "image"): Broken(
        change=lambda objects: _container(objects).update(image="docker.io/vllm/vllm-openai:v0.32.0"),
        says="not in a registry of this sovereign site (allowed: registry.internal)",
        facts=SOVEREIGN,
    ),
    ("sovereign-registries", "a name that begins alike"): Broken(
        change=lambda objects: _container(objects).update(image="registry.internal.example.org/vllm:v0.32.0"),
        says="not in a registry",
        facts=SOVEREIGN,
    ),
    ("sovereign-egress", "hub"): Broken(
        change=lambda objects: _container(objects)["env"].pop(),
        says="may download weights from the hub",
        facts=SOVEREIGN,
    ),
    ("sovereign-egress", "foreign mirror"): Broken(
        change=lambda objects: _container(objects)["env"].__setitem__(
            1, {"name": "HF_ENDPOINT", "value": "https://hf.example"}
        ),
        says="may download weights from https://hf.example",
        facts=SOVEREIGN,
    ),
    ("sovereign-egress", "foreign bucket"): Broken(
        change=lambda objects: _container(objects)["env"].__setitem__(
            1, {"name": "WEIGHTS_BUCKET", "value": "https://s3.example/models"}
        ),
        says="may download weights from https://s3.example/models",
        facts=SOVEREIGN,
    ),
    ("sovereign-egress", "foreign registry of weights"): Broken(
        change=lambda objects: _container(objects)["env"].__setitem__(
            1, {"name": "WEIGHTS_REGISTRY", "value": "https://registry.example/models"}
        ),
        says="may download weights from https://registry.example/models",
        facts=SOVEREIGN,
    ),
    ("sovereign-egress", "external name"): Broken(
        change=lambda objects: objects["service"].update(
            spec={"type": "ExternalName", "externalName": "api.example.org"}
        ),
        says="leads out of this sovereign site, to api.example.org",
        facts=SOVEREIGN,
    ),
}
