"""Which fields of rendered objects hold a value of the site's file as it is, and at which key.

`explain` names a key only if the field has that key's value, so a row that has become wrong shows nothing instead of
something false. What follows from a proof is in `derived_fields`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policy.model import Resource
from sitectl.offline.derived_fields import planned_model
from stacks.plan.site_plan import SitePlan

_CONTAINER = r"spec\.template\.spec\.containers\.\d+\.resources"
_ENVOY = r"spec\.provider\.kubernetes\.envoyDeployment"
_SERVER, _PICKER, _SHARED = "{model}", "{model}-epp", "inference"


@dataclass(frozen=True, kw_only=True)
class KeyOfField:
    """A field of one kind of object, and the key that sets it; `{model}` and `{tier}` are those of the object."""

    kind: str
    name: str
    path: str
    """A pattern of the whole dotted path; its group `value` is compared if it has one, as of a resource's name."""
    key: str
    unit: str = ""
    """What the object writes behind the value."""


ROWS = (
    KeyOfField(kind="Deployment", name=_SERVER, path=r"spec\.replicas", key="models.{model}.server.replicas"),
    KeyOfField(kind="Deployment", name=_SERVER, path=r"spec\.replicas", key="models.{model}.server.scaling.least"),
    KeyOfField(kind="LeaderWorkerSet", name=_SERVER, path=r"spec\.replicas", key="models.{model}.server.replicas"),
    KeyOfField(
        kind="LeaderWorkerSet",
        name=_SERVER,
        path=r"spec\.leaderWorkerTemplate\.size",
        key="models.{model}.server.nodes",
    ),
    KeyOfField(
        kind="ScaledObject", name=_SERVER, path=r"spec\.minReplicaCount", key="models.{model}.server.scaling.least"
    ),
    KeyOfField(kind="ScaledObject", name=_SERVER, path=r"spec\.maxReplicaCount", key="models.{model}.server.replicas"),
    KeyOfField(
        kind="Deployment",
        name=_SERVER,
        path=_CONTAINER + r"\.(requests|limits)\.nvidia\.com/(gpu|mig-.+)",
        key="models.{model}.server.gpus",
    ),
    KeyOfField(
        kind="Deployment",
        name=_SERVER,
        path=_CONTAINER + r"\.(requests|limits)\.nvidia\.com/mig-(?P<value>.+)",
        key="models.{model}.server.gpu_slice",
    ),
    KeyOfField(kind="Deployment", name=_PICKER, path=r"spec\.replicas", key="models.{model}.pool.pickers"),
    KeyOfField(kind="Deployment", name=_PICKER, path=_CONTAINER + r"\.requests\.cpu", key="models.{model}.pool.cpu"),
    KeyOfField(
        kind="Deployment", name=_PICKER, path=_CONTAINER + r"\.requests\.memory", key="models.{model}.pool.memory"
    ),
    KeyOfField(
        kind="AIGatewayRoute",
        name=_SERVER,
        path=r"spec\.rules\.\d+\.timeouts\.(request|backendRequest)",
        key="models.{model}.request_timeout_s",
        unit="s",
    ),
    KeyOfField(
        kind="PersistentVolumeClaim",
        name="{model}-weights-{storage_class}",
        path=r"spec\.storageClassName",
        key="storage.storage_class",
    ),
    KeyOfField(kind="InferenceObjective", name="{tier}.{model}", path=r"spec\.priority", key="tiers.{tier}.priority"),
    KeyOfField(kind="Gateway", name=_SHARED, path=r"spec\.listeners\.\d+\.port", key="gateway.port"),
    KeyOfField(kind="EnvoyProxy", name=_SHARED, path=_ENVOY + r"\.replicas", key="gateway.replicas"),
    KeyOfField(
        kind="EnvoyProxy",
        name=_SHARED,
        path=r"spec\.provider\.kubernetes\.envoyService\.loadBalancerIP",
        key="gateway.address",
    ),
    KeyOfField(
        kind="EnvoyProxy",
        name=_SHARED,
        path=r"spec\.provider\.kubernetes\.envoyService\.externalTrafficPolicy",
        key="gateway.external_traffic_policy",
    ),
    KeyOfField(
        kind="EnvoyProxy",
        name=_SHARED,
        path=_ENVOY + r"\.container\.resources\.limits\.memory",
        key="gateway.memory_mib",
        unit="Mi",
    ),
    KeyOfField(
        kind="EnvoyProxy",
        name=_SHARED,
        path=r"spec\.shutdown\.drainTimeout",
        key="gateway.longest_stream_s",
        unit="s",
    ),
    KeyOfField(
        kind="BackendTrafficPolicy",
        name=_SHARED,
        path=r"spec\.circuitBreaker\.maxParallelRequests",
        key="gateway.max_parallel_streams",
    ),
    KeyOfField(
        kind="ClientTrafficPolicy",
        name=_SHARED,
        path=r"spec\.timeout\.http\.streamIdleTimeout",
        key="gateway.stream_idle_timeout_s",
        unit="s",
    ),
    KeyOfField(kind="Certificate", name=_SHARED, path=r"spec\.secretName", key="gateway.certificate_secret"),
    KeyOfField(kind="Issuer", name=_SHARED, path=r"spec\.ca\.secretName", key="certificates.ca_secret"),
    KeyOfField(kind="Issuer", name="inference-acme", path=r"spec\.acme\.server", key="certificates.acme.server"),
    KeyOfField(kind="Issuer", name="inference-acme", path=r"spec\.acme\.email", key="certificates.acme.email"),
    KeyOfField(
        kind="Issuer",
        name="inference-acme",
        path=r"spec\.acme\.solvers\.0\.dns01\.rfc2136\.nameserver",
        key="certificates.acme.rfc2136.nameserver",
    ),
    KeyOfField(
        kind="ClusterSecretStore",
        name="inference-platform",
        path=r"spec\.provider\.vault\.server",
        key="secrets.store.vault.server",
    ),
    KeyOfField(
        kind="ClusterSecretStore",
        name="inference-platform",
        path=r"spec\.provider\.vault\.auth\.kubernetes\.role",
        key="secrets.store.vault.role",
    ),
    KeyOfField(kind="Prometheus", name=_SHARED, path=r"spec\.retention", key="monitoring.retention_days", unit="d"),
    KeyOfField(
        kind="Prometheus",
        name=_SHARED,
        path=r"spec\.storage\.volumeClaimTemplate\.spec\.resources\.requests\.storage",
        key="monitoring.volume_gib",
        unit="Gi",
    ),
    KeyOfField(
        kind="Alertmanager",
        name=_SHARED,
        path=r"spec\.(configSecret|volumes\.0\.secret\.secretName)",
        key="monitoring.alerts_secret",
    ),
)


def keys_of(
    resource: Resource, plan: SitePlan, path: str, value: Any, value_of: Callable[[str], Any]
) -> list[dict[str, Any]]:
    """The site's keys behind a field, or behind parts of it, each with its value and where it is set.

    path: dotted, as `explain` has walked it. value: what is there. value_of: the value of a dotted key.
    """
    names = _names(resource, plan)
    records = []
    for place, text in _leaves(path, value):
        for row in ROWS:
            match = re.fullmatch(row.path, place)
            if row.kind != resource.kind or not match or not _is_of(row, names):
                continue
            key = row.key.format(**names)
            if key in plan.origins and f"{value_of(key)}{row.unit}" == match.groupdict().get("value", text):
                records.append({"at": place, "key": key, "value": value_of(key), "origin": str(plan.origins[key])})
    return records


def _names(resource: Resource, plan: SitePlan) -> dict[str, str]:
    """What a row may name of an object."""
    own = str((resource.body.get("metadata") or {}).get("name", ""))
    known = {"own": own, "storage_class": plan.site.storage.storage_class}
    tier, _, rest = own.partition(".")
    if tier in plan.site.tiers and rest in plan.models:
        return {**known, "tier": tier, "model": rest}
    return {**known, "tier": "", "model": planned_model(resource, plan)}


def _is_of(row: KeyOfField, names: Mapping[str, str]) -> bool:
    needed = set(re.findall(r"{(\w+)}", row.name + row.key))
    return all(names[name] for name in needed) and names["own"] == row.name.format(**names)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(f"{path}.{place}", inner)
    else:
        yield path, str(value)
