"""Rules between fields of `kubelet_config`, as the kubelet itself has them when it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from stacks.site.reading.raw import at, items, mapping, number

_IDS = 65536
_CGROUPS = {"system-reserved": "systemReservedCgroup", "kube-reserved": "kubeReservedCgroup"}
_BY_PRIORITY, _SHUTDOWN = "shutdownGracePeriodByPodPriority", "shutdownGracePeriod"
_ALLOWLIST, _VERIFY = "preloadedImagesVerificationAllowlist", "imagePullCredentialsVerificationPolicy"


class Broken(NamedTuple):
    """A field below `kubelet_config`, why it does not go with others, and what helps."""

    field: tuple[str, ...]
    why: str
    fix: str


Config = Mapping[str, Any]
Seconds = Callable[[Any], float]


def broken(config: Config, seconds: Seconds) -> Iterator[Broken]:
    """What each field of a whole configuration, Talos's defaults below it, does not go with."""
    yield from _of_reservations(config)
    yield from _of_images(config, seconds)
    yield from _of_shutdown(config, seconds)
    yield from _of_logging(config)
    if config.get("enableSystemLogQuery") is True and config.get("enableSystemLogHandler") is False:
        yield Broken(("enableSystemLogQuery",), "needs enableSystemLogHandler", "take one of the two out")
    if number(config.get("memoryThrottlingFactor")) == 0:
        yield Broken(("memoryThrottlingFactor",), "is 0, and must be above", "write 0.9, or take it out")
    ids = at(config, "userNamespaces", "idsPerPod")
    if isinstance(ids, int) and (ids < _IDS or ids % _IDS):
        yield Broken(
            ("userNamespaces", "idsPerPod"), f"is no multiple of {_IDS}", f"write {max(ids // _IDS, 1) * _IDS}"
        )


def _of_reservations(config: Config) -> Iterator[Broken]:
    enforced = items(config.get("enforceNodeAllocatable"))
    for index, level in enumerate(enforced):
        field = ("enforceNodeAllocatable", str(index))
        cgroup = _CGROUPS.get(str(level).removesuffix("-compressible"))
        if cgroup and not config.get(cgroup):
            yield Broken(field, f"needs {cgroup}", f"take it out, or add {cgroup}")
        elif level == "none" and len(enforced) > 1:
            yield Broken(field, "is beside others", "take it out, or the others")
    if config.get("cgroupsPerQOS") is False and "none" not in enforced:
        yield Broken(("cgroupsPerQOS",), "is false, so enforceNodeAllocatable may hold none alone", "take it out")
    for cgroup in _CGROUPS.values():
        if config.get("reservedSystemCPUs") and config.get(cgroup):
            yield Broken(("reservedSystemCPUs",), f"does not go with {cgroup}", "take one of the two out")
            break
    if config.get("memoryManagerPolicy") == "Static" and not config.get("reservedMemory"):
        yield Broken(
            ("memoryManagerPolicy",),
            "needs reservedMemory, whose sum is that of kubeReserved, systemReserved and evictionHard",
            "take it out, or add reservedMemory",
        )
    for index, reservation in enumerate(items(config.get("reservedMemory"))):
        for name in mapping(mapping(reservation).get("limits")):
            if name != "memory" and not str(name).startswith("hugepages-"):
                where = ("reservedMemory", str(index), "limits", str(name))
                yield Broken(where, "is neither memory nor hugepages-SIZE", "write memory, or take it out")
    gates = mapping(config.get("featureGates"))
    if config.get("memoryReservationPolicy") == "TieredReservation" and gates.get("MemoryQoS") is not True:
        yield Broken(
            ("memoryReservationPolicy",), "needs the feature gate MemoryQoS", "add MemoryQoS: true to featureGates"
        )


def _of_images(config: Config, seconds: Seconds) -> Iterator[Broken]:
    most = number(config.get("maxParallelImagePulls"))
    if config.get("serializeImagePulls") is True and most is not None and most > 1:
        yield Broken(("maxParallelImagePulls",), "does not go with serializeImagePulls", "take one of the two out")
    oldest, youngest = config.get("imageMaximumGCAge"), config.get("imageMinimumGCAge", "2m")
    if oldest is not None and 0 < seconds(oldest) <= seconds(youngest):
        why = f"is not above imageMinimumGCAge, which is {youngest}"
        yield Broken(("imageMaximumGCAge",), why, "write more, or 0s for no end")
    if config.get(_ALLOWLIST) and config.get(_VERIFY) != "NeverVerifyAllowlistedImages":
        yield Broken(
            (_ALLOWLIST,), f"needs {_VERIFY}: NeverVerifyAllowlistedImages", f"take it out, or write that {_VERIFY}"
        )


def _of_shutdown(config: Config, seconds: Seconds) -> Iterator[Broken]:
    for field in (_SHUTDOWN, f"{_SHUTDOWN}CriticalPods"):
        period = config.get(field)
        if period is not None and 0 < seconds(period) < 1:
            yield Broken((field,), "is less than a second", "write 1s or more, or 0s")
    # Talos sets both periods, unless they are written as 0s.
    if config.get(_BY_PRIORITY) and any(
        seconds(config.get(field, "1s")) for field in (_SHUTDOWN, f"{_SHUTDOWN}CriticalPods")
    ):
        fix = f"write {_SHUTDOWN}: 0s and {_SHUTDOWN}CriticalPods: 0s beside it"
        yield Broken((_BY_PRIORITY,), f"does not go with {_SHUTDOWN}, which Talos sets", fix)


def _of_logging(config: Config) -> Iterator[Broken]:
    # Talos writes format json where the site writes none.
    if at(config, "logging", "vmodule") and at(config, "logging", "format") != "text":
        yield Broken(("logging", "vmodule"), "goes with format text alone, and Talos's is json", "add format: text")
