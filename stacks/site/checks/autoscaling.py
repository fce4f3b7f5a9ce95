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


def _scaled(values: Mapping[str, Any]) -> Path | None:
    """The key of the first model that scales."""
    for name, model in mapping(values.get("models")).items():
        if at(mapping(model), "server", "scaling") is not None:
            return ("models", str(name), "server", "scaling")
    return None
