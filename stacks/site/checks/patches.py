"""Patches may set only what no key of a site sets: otherwise machines would differ from what the site sets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import yaml

from components.specs.administrators import ROOTS_FOLDER, SETTINGS_FOLDER
from floor.problems import Path, Problem, shown
from stacks.facts import kubelet_fields
from stacks.site.checks import monitoring, program_flags
from stacks.site.reading.levels import LEVELS, MACHINES
from stacks.site.reading.raw import at, items, mapping, matching
from talos.documents.document import wire_names
from talos.documents.firewall import NetworkRuleConfig, Role, cluster_rules
from talos.documents.network import BondConfig, EthernetConfig

_KEPT = "the cluster's secrets, which `up` makes and keeps"
_VERSION = "the pinned Kubernetes version"
# Field of a machine config -> the key that sets it. The more exact field comes first.
_SET_BY: Mapping[tuple[str, ...], str] = {
    ("machine", "type"): "nodes.<name>.role",
    ("machine", "install", "image"): "image_factory and extensions, out of which each machine's installer is named",
    ("machine", "install", "disk"): "install_disk",
    ("machine", "install", "diskSelector"): "install_disk",
    ("machine", "network", "hostname"): "the node's own key below nodes",
    ("machine", "network", "interfaces"): "links, bonds and vlans",
    ("machine", "network", "nameservers"): "resolvers",
    ("machine", "kubelet", "nodeIP"): "networks.nodes",
    ("machine", "kubelet", "image"): _VERSION,
    ("machine", "kubelet", "clusterDNS"): "networks.services",
    ("machine", "kubelet", "extraConfig"): "kubelet_config",
    ("machine", "kubelet", "extraArgs", "node-ip"): "networks.nodes",
    ("machine", "kubelet", "extraArgs", "hostname-override"): "the node's own key below nodes",
    ("machine", "sysctls"): "sysctls",
    ("machine", "sysfs"): "sysfs",
    ("machine", "nodeTaints"): "taints",
    ("machine", "nodeLabels"): "labels",
    ("machine", "nodeAnnotations"): "annotations",
    ("machine", "install", "extensions"): "extensions, which the image factory builds in",
    ("machine", "install", "extraKernelArgs"): "kernel_args, which the image factory builds in",
    ("machine", "disks"): "volumes",
    ("machine", "systemDiskEncryption"): "system_volumes",
    ("machine", "registries"): "registries",
    ("machine", "time"): "time_servers",
    ("machine", "token"): _KEPT,
    ("machine", "ca"): _KEPT,
    ("cluster", "id"): _KEPT,
    ("cluster", "secret"): _KEPT,
    ("cluster", "token"): _KEPT,
    ("cluster", "ca"): _KEPT,
    ("cluster", "aggregatorCA"): _KEPT,
    ("cluster", "serviceAccount"): _KEPT,
    ("cluster", "secretboxEncryptionSecret"): _KEPT,
    ("cluster", "aescbcEncryptionSecret"): _KEPT,
    ("cluster", "etcd", "ca"): _KEPT,
    ("cluster", "controlPlane", "endpoint"): "endpoint",
    ("cluster", "controlPlane", "localAPIServerPort"): "endpoint, whose port is 6443",
    ("cluster", "clusterName"): "name, at the top of the site",
    ("cluster", "network", "podSubnets"): "networks.pods",
    ("cluster", "network", "serviceSubnets"): "networks.services",
    ("cluster", "network", "dnsDomain"): "networks.dns_domain",
    ("cluster", "network", "cni"): "cni",
    **{
        ("cluster", component, "image"): _VERSION
        for component in ("apiServer", "controllerManager", "scheduler", "proxy")
    },
    ("cluster", "etcd", "image"): "the pinned Talos version",
    ("cluster", "coreDNS", "image"): "the pinned Talos version",
    ("cluster", "apiServer", "extraArgs", "service-cluster-ip-range"): "networks.services",
    ("cluster", "apiServer", "extraArgs", "secure-port"): "endpoint, whose port is 6443",
    ("cluster", "controllerManager", "extraArgs", "service-cluster-ip-range"): "networks.services",
    ("cluster", "controllerManager", "extraArgs", "cluster-cidr"): "networks.pods",
    ("cluster", "etcd", "advertisedSubnets"): "networks.nodes",
    ("cluster", "etcd", "extraArgs", "listen-client-urls"): "networks.nodes",
    ("cluster", "etcd", "extraArgs", "listen-peer-urls"): "networks.nodes",
    ("cluster", "allowSchedulingOnControlPlanes"): "nodes.<name>.schedulable",
    ("cluster", "discovery"): "discovery",
}
# The same where the site has the section.
_SET_BY_SECTIONS: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "administrators": {
        **{
            ("cluster", "apiServer", "extraArgs", flag): "administrators"
            for flag in (
                *("oidc-issuer-url", "oidc-client-id", "oidc-ca-file", "oidc-signing-algs"),
                *("oidc-username-claim", "oidc-username-prefix", "oidc-groups-claim", "oidc-groups-prefix"),
                # Beside those flags the API server does not start with it.
                "authentication-config",
            )
        },
    },
    "audit": {
        ("cluster", "apiServer", "auditPolicy"): "audit",
        **{
            ("cluster", "apiServer", "extraArgs", flag): "audit"
            for flag in (
                *("audit-log-path", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize"),
                *("audit-policy-file", "audit-webhook-config-file"),
            )
        },
    },
}
# The same where the site measures its hosts.
_SET_BY_MEASURED: Mapping[tuple[str, ...], str] = {
    ("cluster", "etcd", "extraArgs", "listen-metrics-urls"): "monitoring.hosts"
}
# Flags of the kubelet that switch its authentication off, whose fields Talos protects.
_KUBELET_GUARDS = frozenset({"anonymous-auth", "authorization-mode", "authentication-token-webhook", "client-ca-file"})
# Field of a machine config -> a value that takes away what the platform needs, and the reason.
_NEEDED: Mapping[tuple[str, ...], tuple[bool, str]] = {
    ("machine", "kubelet", "skipNodeRegistration"): (True, "each machine below nodes is a node of the cluster"),
    ("machine", "controlPlane", "controllerManager", "disabled"): (True, "nothing would start pods of a Deployment"),
    ("machine", "controlPlane", "scheduler", "disabled"): (True, "nothing would place pods on nodes"),
    ("cluster", "coreDNS", "disabled"): (True, "pods find Services by its names"),
}
_NEEDED_WITH_CILIUM: Mapping[tuple[str, ...], tuple[bool, str]] = {
    ("machine", "features", "kubePrism", "enabled"): (False, "Cilium reaches the Kubernetes API through KubePrism"),
    ("cluster", "proxy", "disabled"): (False, "Cilium takes its place, and both would handle Services"),
}
_NEEDED_FOR_BACKUPS: Mapping[tuple[str, ...], tuple[bool, str]] = {
    ("machine", "features", "kubernetesTalosAPIAccess", "enabled"): (False, "etcd_backup takes snapshots through it"),
}
_VOLUMES = ("cluster", "apiServer", "extraVolumes")
_CLOUD_PROVIDER = ("cluster", "externalCloudProvider")
_IN_ANY_CASE = frozenset({"apiVersion", "kind", "name"})
# Document kinds that `up` makes from a key: the key, and the fields that it decides; all of them where none is named.
_DOCUMENTS: Mapping[str, tuple[str, frozenset[str]]] = {
    "HostnameConfig": ("the node's own key below nodes", frozenset()),
    "Layer2VIPConfig": ("networks.vip and networks.vip_link", frozenset()),
    "NetworkDefaultActionConfig": ("firewall", frozenset()),
    "LinkConfig": ("links", frozenset()),
    "VLANConfig": ("vlans", frozenset()),
    "BondConfig": ("bonds", wire_names(BondConfig)),
    "LinkAliasConfig": ("link_aliases", frozenset()),
    "EthernetConfig": ("ethernet", wire_names(EthernetConfig)),
    "DHCPv4Config": ("links.<name>.dhcp", frozenset()),
    "DHCPv6Config": ("links.<name>", frozenset()),
    "ResolverConfig": ("resolvers", frozenset({"nameservers"})),
    "TimeSyncConfig": ("time_servers", frozenset()),
    "StaticHostConfig": ("static_hosts", frozenset()),
    "VolumeConfig": ("system_volumes", frozenset({"provisioning", "encryption"})),
    "UserVolumeConfig": ("volumes", frozenset({"volumeType", "provisioning", "filesystem", "encryption"})),
    "RawVolumeConfig": ("raw_volumes", frozenset()),
    "RegistryMirrorConfig": ("registries.mirrors", frozenset()),
    "RegistryAuthConfig": ("registries.auth", frozenset()),
    "RegistryTLSConfig": ("registries.tls", frozenset()),
    "TrustedRootsConfig": ("trusted_roots", frozenset()),
    "WatchdogTimerConfig": ("watchdog_s", frozenset()),
    "KmsgLogConfig": ("kernel_log", frozenset()),
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Patches that set what a key of the site sets."""
    machines = at(values, *MACHINES)
    needed = dict(_NEEDED)
    if mapping(machines).get("cni", "cilium") == "cilium":
        needed |= _NEEDED_WITH_CILIUM
    if mapping(machines).get("etcd_backup"):
        needed |= _NEEDED_FOR_BACKUPS
    set_by = dict(_SET_BY)
    for section, fields in _SET_BY_SECTIONS.items():
        # A section without a key of its own is one, with what it has by default.
        set_by |= fields if mapping(machines).get(section) is not None else {}
    if monitoring.measures_hosts(values):
        set_by |= _SET_BY_MEASURED
    mounts = dict(_mounts(mapping(machines)))
    for level in LEVELS:
        for path, patch in matching(machines, f"{level}patches.<name>"):
            where, patch = (*MACHINES, *path), mapping(patch)
            if patch.get("kind") is not None:
                yield from _of_document(where, patch)
                continue
            reported = [*_of_fields(where, patch, set_by), *_of_kubelet(where, patch)]
            yield from reported
            paths = [problem.path for problem in reported]
            yield from program_flags.problems(where, patch, paths, partial(_has_key, set_by))
            yield from _of_needed(where, patch, needed)
            yield from _of_mounts(where, patch, mounts)
            yield from _of_manifests(where, patch)


def is_decided(patch: Mapping[str, Any]) -> bool:
    """Whether a key decides what the document sets, so the patch has no place in a site, well formed or not."""
    kind = patch.get("kind")
    if kind == NetworkRuleConfig.kind:
        return str(patch.get("name")) in _own_rules()
    if not isinstance(kind, str) or kind not in _DOCUMENTS:
        return False
    _, decided = _DOCUMENTS[kind]
    fields = set(patch) - _IN_ANY_CASE
    return not decided or "$patch" in fields or not fields or bool(fields & decided)


def _of_document(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    kind = patch.get("kind")
    if kind == NetworkRuleConfig.kind:
        yield from _of_rule(path, patch)
    elif is_decided(patch):
        yield _set_elsewhere((*path, "kind"), str(kind), _DOCUMENTS[str(kind)][0])


def _of_rule(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    """A site may add rules, as a pod network of its own needs them; it opens no port to everybody in this way."""
    name = patch.get("name")
    if str(name) in _own_rules() or "$patch" in patch:
        yield _set_elsewhere((*path, "name"), f"the rule {shown(name)}", "firewall")
        return
    for index, source in enumerate(items(patch.get("ingress"))):
        subnet = str(mapping(source).get("subnet", ""))
        if subnet.endswith("/0"):
            yield Problem(
                path=(*path, "ingress", str(index), "subnet"),
                what="opens the ports to everybody, past the firewall",
                got=shown(subnet),
                fix="name the subnets that need them; for the gateway use firewall.load_balancer_ports and clients",
            )


@cache
def _own_rules() -> frozenset[str]:
    """Names of the rules that `firewall` makes, on any machine."""
    roles: tuple[Role, ...] = ("controlplane", "worker")
    rules = (
        cluster_rules(
            role,
            admins=(),
            control_planes=(),
            nodes=(),
            cni="cilium",
            load_balancer_ports=(443,),
            metrics_pods=("10.0.0.0/8",),
            pod_network_metrics=True,
        )
        for role in roles
    )
    return frozenset(rule.name for made in rules for rule in made if isinstance(rule, NetworkRuleConfig))


def _of_fields(path: Path, patch: Mapping[str, Any], set_by: Mapping[tuple[str, ...], str]) -> Iterator[Problem]:
    reported: set[tuple[str, ...]] = set()
    for field, key in set_by.items():
        place = _place(patch, field)
        if place and place not in reported:
            reported.add(place)
            yield _set_elsewhere((*path, *place), ".".join(place), key)


def _has_key(set_by: Mapping[tuple[str, ...], str], field: tuple[str, ...]) -> bool:
    """Whether a key sets the field, so a patch may not."""
    if field[:2] != ("machine", "kubelet"):
        return field in set_by
    return field in set_by or any(_of_kubelet((), {"machine": {"kubelet": {"extraArgs": {field[-1]: ""}}}}))


def _of_kubelet(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    """Flags win over the kubelet's configuration, so what is decided there is decided here too."""
    decisions = {field.casefold(): row for field, row in kubelet_fields.load().decisions.items()}
    where = ("machine", "kubelet", "extraArgs")
    for written in mapping(at(patch, *where)):
        # The kubelet reads underscores as dashes.
        flag = str(written).replace("_", "-")
        decision = decisions.get(flag.replace("-", ""))
        if decision is not None or flag in _KUBELET_GUARDS:
            by = decision.by if decision else "Talos"
            if by in ("Talos", "the platform"):
                yield Problem(
                    path=(*path, *where, str(written)),
                    what=f"sets the kubelet's {flag}, which {by} decides: it guards the node or holds it together",
                    fix="take it out of the patch",
                )
            else:
                yield _set_elsewhere((*path, *where, str(written)), f"the kubelet's {flag}", by)
        elif field := kubelet_fields.load().named_like(flag):
            yield _set_elsewhere((*path, *where, str(written)), f"the kubelet's {flag}", f"kubelet_config.{field}")


def _mounts(machines: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Talos's name of each folder that the program mounts into API servers, and the key that has it do so."""
    sends = mapping(machines.get("audit")).get("webhook") is not None
    if sends:
        yield _volume(SETTINGS_FOLDER), "audit.webhook"
    if sends or machines.get("administrators") is not None:
        yield _volume(ROOTS_FOLDER), "administrators" if machines.get("administrators") is not None else "audit.webhook"


def _volume(folder: str) -> str:
    """As Talos v1.13.9 names a volume by where it is mounted (v1alpha1_provider.go); a pod has each name once."""
    return re.sub(r"[/_.]", "-", posixpath.normpath(folder)).strip("-")


def _of_mounts(path: Path, patch: Mapping[str, Any], mounts: Mapping[str, str]) -> Iterator[Problem]:
    """Talos appends a patch's mounts: with the same one twice no API server would start."""
    volumes = at(patch, *_VOLUMES)
    for index, volume in enumerate(items(volumes)):
        folder = mapping(volume).get("mountPath")
        key = mounts.get(_volume(folder)) if isinstance(folder, str) else None
        if key:
            yield Problem(
                path=(*path, *_VOLUMES, str(index), "mountPath"),
                what=f"is mounted by {key} already, and no API server starts with a mount twice",
                got=shown(folder),
                fix="take it out of the patch",
            )
    if mounts and "$patch" in mapping(volumes):
        yield _set_elsewhere((*path, *_VOLUMES), "mounts of the API server", " and ".join(sorted({*mounts.values()})))


def _of_needed(
    path: Path, patch: Mapping[str, Any], needed: Mapping[tuple[str, ...], tuple[bool, str]]
) -> Iterator[Problem]:
    for field, (harmful, why) in needed.items():
        value = at(patch, *field)
        place = field if value is harmful else _deleted(patch, field) if not harmful else ()
        if place:
            yield Problem(
                path=(*path, *place),
                what=f"takes away what the platform needs: {why}",
                got="$patch: delete" if value is not harmful else shown(value),
                fix="take it out of the patch",
            )
    provider = mapping(at(patch, *_CLOUD_PROVIDER))
    if provider.get("enabled") is True and not (provider.get("manifests") or at(patch, "cluster", "inlineManifests")):
        yield Problem(
            path=(*path, *_CLOUD_PROVIDER, "enabled"),
            what="taints each new node until a cloud controller manager takes the taint away, and none is installed",
            fix="take it out of the patch, or name its manifests beside it",
        )


def _of_manifests(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    """Talos reads inline manifests on the control plane only when the cluster starts."""
    for index, manifest in enumerate(items(at(patch, "cluster", "inlineManifests"))):
        contents = mapping(manifest).get("contents")
        if isinstance(contents, str) and not _is_objects(contents):
            yield Problem(
                path=(*path, "cluster", "inlineManifests", str(index), "contents"),
                what="is no YAML of Kubernetes objects",
                allowed="documents with apiVersion and kind",
                fix="correct the text, and keep its indentation with `contents: |`",
            )


def _is_objects(text: str) -> bool:
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError):
        return False
    return all(
        document is None or (isinstance(document, Mapping) and {"apiVersion", "kind"} <= set(document))
        for document in documents
    )


def _set_elsewhere(path: Path, what: str, key: str) -> Problem:
    return Problem(
        path=path,
        what=f"sets {what}, which {key} decides; the proof, the plan and the upgrade would not know of it",
        fix="take it out of the patch" + ("" if key is _KEPT else f", and use {key}"),
    )


def _place(patch: Mapping[str, Any], field: tuple[str, ...]) -> tuple[str, ...]:
    """Where the patch sets the field or deletes something around it, or nothing."""
    above = at(patch, *field[:-1]) if len(field) > 1 else patch
    if isinstance(above, Mapping) and field[-1] in above:
        return field
    return _deleted(patch, field)


def _deleted(patch: Mapping[str, Any], field: tuple[str, ...]) -> tuple[str, ...]:
    """The shortest part of the field's path that the patch deletes, or nothing."""
    for size in range(1, len(field) + 1):
        if "$patch" in mapping(at(patch, *field[:size])):
            return field[:size]
    return ()
