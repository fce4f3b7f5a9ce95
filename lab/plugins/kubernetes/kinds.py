"""What is known of kinds without asking a cluster: built-in API versions, their scope, what cannot change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lab.plugins.kubernetes.objects import GroupVersionKind, gvk_of, is_config_map, is_secret
from lab.plugins.kubernetes.properties import Tree

_BUILT_IN_GROUPS: Final = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "extensions",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    }
)

# Cluster-scoped built-in kinds; every other built-in kind is namespaced.
_CLUSTER_SCOPED: Final = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrustBundle",
        "ComponentStatus",
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "DeviceClass",
        "DeviceTaintRule",
        "FlowSchema",
        "IngressClass",
        "IPAddress",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "ServiceCIDR",
        "StorageClass",
        "StorageVersionMigration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
        "VolumeAttributesClass",
    }
)


def is_built_in(gvk: GroupVersionKind) -> bool:
    """Whether the kind's API version is one of Kubernetes itself."""
    return gvk.group in _BUILT_IN_GROUPS


def built_in_scope(gvk: GroupVersionKind) -> bool | None:
    """True for namespaced, False for cluster-scoped, None if the kind is not built in."""
    return gvk.kind not in _CLUSTER_SCOPED if is_built_in(gvk) else None


def is_patch(type_token: str, kind: str) -> bool:
    """Whether the resource manages some fields of an object that others own (`ConfigMapPatch` and the like)."""
    return type_token.endswith("Patch") and not kind.endswith("Patch")


def is_list(gvk: GroupVersionKind) -> bool:
    """Whether the kind is a list of built-in objects, which the API server never stores."""
    return gvk.kind.endswith("List") and is_built_in(gvk)


_IDENTITY: Final = (".metadata.name", ".metadata.namespace")

_CONTAINER: Final = tuple(
    f".spec.{containers}[*].{field}"
    for containers in ("containers", "initContainers")
    for field in (
        "args",
        "command",
        "env",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resources",
        "securityContext",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    )
)

_POD: Final = tuple(
    f".spec.{field}"
    for field in (
        "affinity",
        "automountServiceAccountToken",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostname",
        "imagePullSecrets",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "volumes",
    )
)

_VOLUME_SOURCES: Final = tuple(
    f".spec.{source}"
    for source in (
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "csi",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "glusterfs",
        "hostPath",
        "iscsi",
        "local",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    )
)

# Fields that the API server refuses to change, per (group, kind); changing one replaces the object.
_IMMUTABLE: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("apps", "DaemonSet"): (".spec.selector",),
    ("apps", "Deployment"): (".spec.selector",),
    ("apps", "StatefulSet"): (
        ".spec.podManagementPolicy",
        ".spec.revisionHistoryLimit",
        ".spec.selector",
        ".spec.serviceName",
        ".spec.volumeClaimTemplates",
    ),
    ("", "PersistentVolume"): _VOLUME_SOURCES,
    ("", "PersistentVolumeClaim"): (
        ".spec.accessModes",
        ".spec.selector",
        ".spec.storageClassName",
        ".spec.volumeName",
    ),
    ("", "Pod"): (*_POD, *_CONTAINER),
    ("", "ResourceQuota"): (".spec.scopes",),
    ("", "Secret"): (".type",),
    ("", "Service"): (".spec.clusterIP",),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (".roleRef",),
    ("rbac.authorization.k8s.io", "RoleBinding"): (".roleRef",),
    ("storage.k8s.io", "StorageClass"): (".parameters", ".provisioner"),
    ("batch", "Job"): (".spec.completions", ".spec.parallelism", ".spec.selector", ".spec.template"),
}


def replacing_fields(obj: Tree, *, mutable_secrets: bool, mutable_config_maps: bool) -> Sequence[str]:
    """Field patterns whose change replaces this object, identity first; `[*]` means any list index."""
    gvk = gvk_of(obj)
    if is_secret(obj) and (not mutable_secrets or obj.get("immutable") is True):
        return (*_IDENTITY, ".type", ".stringData", ".data")
    if is_config_map(obj) and (not mutable_config_maps or obj.get("immutable") is True):
        return (*_IDENTITY, ".binaryData", ".data")
    return (*_IDENTITY, *_IMMUTABLE.get((gvk.group, gvk.kind), ()))


def patch_replacing_fields() -> Sequence[str]:
    """A Patch resource is replaced only if it patches another object."""
    return _IDENTITY


def forces_replacement(path: Sequence[str | int], value: Any, patterns: Sequence[str]) -> bool:
    """Whether changing `path` to `value` touches a field of `patterns`, at it, above it or below it."""
    return any(_touches(path, value, pattern) for pattern in patterns)


def _touches(path: Sequence[str | int], value: Any, pattern: str) -> bool:
    wanted = pattern.replace("[*]", ".*").strip(".").split(".")
    for step, part in zip(path, wanted, strict=False):
        if part != step and not (part == "*" and isinstance(step, int)):
            return False
    return _holds(value, wanted[len(path) :])


def _holds(value: Any, rest: Sequence[str]) -> bool:
    if not rest:
        return True
    if rest[0] == "*":
        return isinstance(value, list) and any(_holds(item, rest[1:]) for item in value)
    return isinstance(value, dict) and rest[0] in value and _holds(value[rest[0]], rest[1:])
