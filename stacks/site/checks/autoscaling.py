"""Models that scale: that something measures what they are scaled by, and that what scales them can ask it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.autoscaling import AutoscalingSpec
from components.specs.monitoring import MonitoringSpec
from floor.problems import Path, Problem, shown
from stacks.site.reading.raw import at, mapping

_SECTION = "autoscaling"
# Key -> the section with the system that reads it, and that system.
_READERS = {"namespace": (_SECTION, "external"), "prometheus": ("monitoring", "external")}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong between a model that scales, this section and monitoring."""
    section = mapping(values.get(_SECTION))
    systems = {
        _SECTION: section.get("system", AutoscalingSpec.model_fields["system"].default),
        "monitoring": at(values, "monitoring", "system") or MonitoringSpec.model_fields["system"].default,
    }
    for key, (reader, system) in _READERS.items():
        if section.get(key) is not None and systems[reader] != system:
            yield Problem(
                path=(_SECTION, key),
                what=f"is set, and {reader}.system {systems[reader]} does not read it",
                got=shown(section[key]),
                allowed=f"with {reader}.system: {system}",
                fix=f"take it out, or set {reader}.system to {system}",
            )
    yield from _at_zero(values)
    yield from _by_pages(values)
    scaled = _scaled(values)
    if scaled is None:
        return
    if systems["monitoring"] == "none":
        yield Problem(
            path=scaled,
            what="follows the load, and nothing measures it",
            got="monitoring.system none",
            allowed="monitoring.system: prometheus_operator or external",
            fix="set monitoring.system to prometheus_operator, or take scaling out",
        )
    elif systems["monitoring"] == "external" and section.get("prometheus") is None:
        yield Problem(
            path=scaled,
            what="follows what the cluster's Prometheus measures, and its address is not known",
            got="monitoring.system external without autoscaling.prometheus",
            allowed="an address that KEDA's operator reaches without a login",
            fix="set autoscaling.prometheus, such as http://prometheus-operated.monitoring:9090",
        )


def _by_pages(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What does not go with admission by pages. Queues and overflow begin where a model is full, which it never is."""
    for name, model in mapping(values.get("models")).items():
        if at(mapping(model), "pool", "admission") != "pages":
            continue
        path: Path = ("models", str(name), "pool", "admission")
        for keys, why in (
            (("server", "scaling"), "counts the KV cache of a fixed number of replicas, and this one follows its load"),
            (("pool", "queues"), "refuses what the replicas have no room for, before it could wait in a queue"),
            (("overflow",), "refuses what the replicas have no room for, before another model could answer it"),
        ):
            if at(mapping(model), *keys):
                key = ".".join(keys)
                yield Problem(
                    path=path,
                    what=why,
                    got=f"pages, with {key}",
                    allowed=f"requests; or pages, without {key}",
                    fix=f"take admission out, or {key}",
                )


def _at_zero(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What counts on replicas of a model that may have none."""
    models = mapping(values.get("models"))
    idle = [name for name, model in models.items() if at(model, "server", "scaling", "least") == 0]
    for name in idle:
        path: Path = ("models", str(name))
        scaling = ".".join((*path, "server", "scaling", "least"))
        for where, what, fix in _counting_on(str(name), mapping(models[name])):
            yield Problem(
                path=(*path, *where),
                what=f"{what}, and {name} may have no replica",
                got=f"{scaling} 0",
                allowed=f"{scaling} of 1 or more",
                fix=f"set {scaling} to 1, or {fix}",
            )
    for name, model in models.items():
        if (to := at(model, "overflow", "to")) in idle:
            scaling = f"models.{to}.server.scaling.least"
            yield Problem(
                path=("models", str(name), "overflow", "to"),
                what="answers while another model is full or away, and may have no replica itself then",
                got=f"{to}, with {scaling} 0",
                allowed="a model that always has a replica",
                fix=f"set {scaling} to 1, or name another model",
            )


def _counting_on(name: str, model: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Keys of a model that count on its replicas: what they would do, and how to do without."""
    if at(model, "pool", "queues") is True:
        # A queue holds a request for a minute; it would hold the first one until its time is up (ADR 67).
        yield ("pool", "queues"), "lets requests wait for a replica, for less than one takes to start", "take it out"
    if at(model, "canary") is not None:
        yield ("canary",), f"is compared with the replicas of {name}, under load", "take the canary out"
    for group, spec in mapping(at(model, "dedicated")).items():
        if at(spec, "when_away") == "shared":
            where: Path = ("dedicated", str(group), "when_away")
            yield where, "sends its tenants to the shared replicas", "set it to refuse"


def _scaled(values: Mapping[str, Any]) -> Path | None:
    """The key of the first model that scales."""
    for name, model in mapping(values.get("models")).items():
        if at(mapping(model), "server", "scaling") is not None:
            return ("models", str(name), "server", "scaling")
    return None
