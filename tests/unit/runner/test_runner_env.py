from __future__ import annotations

import base64
from typing import Any

import pytest

from lab.runner.env import (
    MissingReferenceError,
    PodFacts,
    container_env,
    expand,
    field_value,
    resource_value,
    service_links,
)

FACTS = PodFacts(pod_ip="198.18.1.2", host_ip="198.18.0.10", allocatable={"cpu": "32", "memory": "128Gi"})
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "team", "uid": "u", "labels": {"app": "web", "tier": 'a"b'}},
    "spec": {"nodeName": "infra-1", "serviceAccountName": "runner", "containers": []},
}


def lookup(kind: str, name: str) -> dict[str, Any] | None:
    objects = {
        ("Secret", "key"): {"kind": "Secret", "data": {"token": base64.b64encode(b"s3cret").decode()}},
        ("ConfigMap", "settings"): {"kind": "ConfigMap", "data": {"MODE": "fast", "not a name": "x", "a.file": "y"}},
    }
    return objects.get((kind, name))


def env(*entries: dict[str, Any], sources: list[dict[str, Any]] | None = None) -> dict[str, str]:
    container = {"name": "main", "env": list(entries), "envFrom": sources or []}
    return container_env(POD, container, FACTS, lookup, {"LINK": "1"}, {"HOME": "/root"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)/x", "1/x"),
        ("$$(A)", "$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A $(A", "$A $(A"),
        ("cost $", "cost $"),
        ("$(A)$(B)", "12"),
        ("$$$(A)", "$1"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_later_variables_see_earlier_ones_and_service_links() -> None:
    values = env({"name": "A", "value": "$(LINK)-$(B)"}, {"name": "B", "value": "$(A)"})
    assert (values["A"], values["B"]) == ("1-$(B)", "1-$(B)")


def test_default_gives_way_to_the_spec() -> None:
    assert env({"name": "HOME", "value": "/home/x"})["HOME"] == "/home/x"
    assert env()["HOME"] == "/root"


def test_sources_of_variables() -> None:
    values = env(
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "MODE"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "a", "optional": True}}},
    )
    assert values["IP"] == "198.18.1.2"
    assert values["KEY"] == "s3cret"
    assert values["MODE"] == "fast"
    assert "NONE" not in values


def test_env_from_skips_names_that_are_none_and_takes_a_prefix() -> None:
    values = env(sources=[{"configMapRef": {"name": "settings"}, "prefix": "P_"}])
    assert values["P_MODE"] == "fast"
    assert values["P_a.file"] == "y"
    assert "P_not a name" not in values


@pytest.mark.parametrize(
    "source",
    [
        {"secretKeyRef": {"name": "absent", "key": "a"}},
        {"secretKeyRef": {"name": "key", "key": "absent"}},
        {"fieldRef": {"fieldPath": "spec.hostname"}},
    ],
)
def test_missing_reference_names_what_is_missing(source: dict[str, Any]) -> None:
    with pytest.raises(MissingReferenceError, match=r"absent|spec\.hostname"):
        env({"name": "A", "valueFrom": source})


def test_field_value_of_labels() -> None:
    assert field_value(POD, FACTS, "metadata.labels['app']") == "web"
    assert field_value(POD, FACTS, "metadata.labels['none']") == ""
    assert field_value(POD, FACTS, "metadata.labels") == 'app="web"\ntier="a\\"b"'


def test_resource_value_rounds_up_and_falls_back_to_the_node() -> None:
    container = {"name": "main", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "1Gi"}}}
    assert resource_value(container, FACTS, "limits.cpu", "1") == "2"
    assert resource_value(container, FACTS, "limits.cpu", "1m") == "1500"
    assert resource_value(container, FACTS, "requests.memory", "1Mi") == "1024"
    assert resource_value(container, FACTS, "limits.memory", "1Gi") == "128"


def test_service_links() -> None:
    service = {
        "metadata": {"name": "kube-dns"},
        "spec": {"clusterIP": "10.0.0.10", "ports": [{"port": 53, "name": "dns"}]},
    }
    headless = {"metadata": {"name": "none"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    links = service_links([service, headless])
    assert links["KUBE_DNS_SERVICE_HOST"] == "10.0.0.10"
    assert links["KUBE_DNS_SERVICE_PORT_DNS"] == "53"
    assert links["KUBE_DNS_PORT_53_TCP"] == "tcp://10.0.0.10:53"
    assert not any(name.startswith("NONE") for name in links)
