"""What a change of a machine's config does to a machine that runs, as far as Talos's source of v1.13.9 answers it.

Read from siderolabs/talos@v1.13.9: internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go:130-208 lists what of
the v1alpha1 document a running machine takes; documents of their own are never compared there. Volumes: below
internal/app/machined/pkg/controllers/block/internal/volumes/, locate.go:24-52 and encrypt.go:71-85. etcd's arguments:
docs.siderolabs.com/kubernetes-guides/monitoring-and-observability/etcd-metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from floor.problems import Path
from talos.documents.document import API_VERSION

Word = Literal["live", "reboot", "reinstall", "wipe", "unknown"]
State = Literal["added", "changed", "removed"]
# Kind of a config's main document, which states none.
MAIN = API_VERSION


@dataclass(frozen=True)
class Effect:
    """`word` for programs, `why` for people."""

    word: Word
    why: str


_LIVE = Effect("live", "the machine takes it at once, without a reboot")
_REBOOT = Effect("reboot", "the node is drained and the machine reboots: Talos does not take this while it runs")
_IMAGE = Effect("reboot", "the node is drained and the machine reboots into the other image")
_INSTALL = Effect("reinstall", "an installed machine keeps its disk: it takes effect when Talos is installed again")
_NETWORK = Effect("live", "the machine takes it at once: a wrong value cuts it off, and ends what runs over the link")
_FIREWALL = Effect("live", "the machine takes it at once: a rule that leaves out your own address locks you out")
_KUBELET = Effect("live", "the kubelet restarts at once; the machine and its pods stay")
_CONTROL_PLANE = Effect(
    "live", "the machine takes it at once; a program of the control plane whose settings it is starts again"
)
_POD_NETWORK = Effect(
    "unknown", "the machine takes it at once; what nodes, pods and Services do that have addresses already is not known"
)
_PLACE = Effect(
    "wipe", "a volume that exists stays as it is: another place, kind or form is for one that is made after a wipe"
)
_SIZE = Effect("unknown", "a volume that exists is not made smaller; whether it grows depends on `grow` and its disk")
_CIPHER = Effect(
    "wipe", "a volume that exists fails to open: a plain one does not become encrypted, nor the other way round"
)
_SLOTS = Effect("unknown", "slots are changed when the volume is opened next, if one of its keys fits")
_MADE = Effect("live", "Talos makes the volume at once where its selector finds room; without room it waits")
_GONE = Effect("unknown", "what is on the disk stays there; what uses the volume loses it")
_REGISTRY = Effect(
    "unknown", "Talos takes it at once; containerd reads credentials when it starts, so a reboot may be due"
)

_OF_MACHINE: dict[str, Effect] = {
    "install": _INSTALL,
    "kubelet": _KUBELET,
    "network": _NETWORK,
    "registries": _REGISTRY,
    **dict.fromkeys(
        ("ca", "acceptedCAs", "time", "certSANs", "sysfs", "sysctls", "logging", "controlPlane", "kernel", "pods"),
        _LIVE,
    ),
    **dict.fromkeys(("seccompProfiles", "nodeAnnotations", "nodeLabels", "nodeTaints"), _LIVE),
}
_LIVE_FEATURES = frozenset(
    {"kubernetesTalosAPIAccess", "kubePrism", "hostDNS", "imageCache", "nodeAddressSortAlgorithm"}
)
_OF_CLUSTER: dict[Path, Effect] = {
    ("etcd", "extraArgs"): Effect(
        "live", "the machine takes it without a reboot; etcd itself starts with it when the machine boots next"
    ),
    ("network", "podSubnets"): _POD_NETWORK,
    ("network", "serviceSubnets"): _POD_NETWORK,
    ("network", "dnsDomain"): _POD_NETWORK,
    ("network", "cni"): _POD_NETWORK,
    ("inlineManifests",): Effect(
        "unknown", "Talos makes objects that it has never made, and changes none; what they change is not compared here"
    ),
}
_VOLUMES = frozenset({"VolumeConfig", "UserVolumeConfig", "RawVolumeConfig"})
_OF_DOCUMENTS: dict[str, Effect] = {
    **dict.fromkeys(("NetworkRuleConfig", "NetworkDefaultActionConfig"), _FIREWALL),
    **dict.fromkeys(
        ("LinkConfig", "BondConfig", "VLANConfig", "LinkAliasConfig", "EthernetConfig", "DHCPv4Config"), _NETWORK
    ),
    **dict.fromkeys(("Layer2VIPConfig", "HostnameConfig", "ResolverConfig", "StaticHostConfig"), _NETWORK),
    "RegistryAuthConfig": _REGISTRY,
}


def effect_of(kind: str, path: Path, state: State = "changed") -> Effect:
    """Of a changed field, by the kind of its document (MAIN for the main one) and the keys that lead to it.

    state: what happens to its document.
    """
    if kind == MAIN:
        return _of_main(path)
    if kind in _VOLUMES:
        return {"added": _MADE, "removed": _GONE}.get(state) or _of_volume(path)
    return _OF_DOCUMENTS.get(kind, Effect("live", f"{_LIVE.why}: it is a document of its own"))


def _of_main(path: Path) -> Effect:
    section, *below = (*path, "")
    if section == "debug":
        return _LIVE
    if section == "cluster":
        named = next((effect for start, effect in _OF_CLUSTER.items() if tuple(below[: len(start)]) == start), None)
        return named or _CONTROL_PLANE
    if section != "machine":
        return _REBOOT
    if below[:2] == ["install", "image"]:
        return _IMAGE
    if below[0] == "features":
        return _LIVE if below[1] in _LIVE_FEATURES else _REBOOT
    return _OF_MACHINE.get(below[0], _REBOOT)


def _of_volume(path: Path) -> Effect:
    if path[:1] == ("encryption",):
        return _CIPHER if path[1:2] in ((), ("provider",)) else _SLOTS
    if path[:1] == ("provisioning",) and path[-1] in ("minSize", "maxSize", "grow"):
        return _SIZE
    return _PLACE
