"""Logs of all pods, where a site asks for it: what is read of a node, where lines go, and who reaches their store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.addons.logs import COLLECTOR, NAMESPACE, STORE, STORE_PORT
from components.monitoring import prometheus
from components.specs.logs import LogsSpec
from stacks.plan.by_hand import by_hand
from stacks.plan.disks import log_volumes
from tests.unit.spine.test_grafana_site import ROOT, declared, planned
from tests.unit.stacks.test_wrong_secrets import STORE as STORED
from tests.unit.stacks.wrong_sites import Wrong, refused_and_fixed

pytestmark = pytest.mark.row("003.20", "000.05")

KEPT: dict[str, Any] = {"logs": {"system": "victoria_logs"}}
SENT: dict[str, Any] = {
    "logs": {"system": "external", "address": "https://logs.site.example", "token_secret": "log-token"},
    "cluster.machines.trusted_roots": {"site": ROOT},
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return declared(tmp_path_factory.mktemp("kept"), KEPT)[0]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return declared(tmp_path_factory.mktemp("sent"), SENT)[0]


def values(made: dict[str, Any], release: str = COLLECTOR) -> dict[str, Any]:
    of_chart: dict[str, Any] = made[f"logs-{release}"]["values"]
    return of_chart


def test_collectors_are_on_every_node_and_read_the_logs_of_pods_alone(kept: dict[str, Any]) -> None:
    """Not /var/lib, which is the chart's own choice: Secrets of pods are in it."""
    collector = values(kept)
    assert collector["tolerations"] == [{"operator": "Exists"}]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in collector["defaultVolumes"]}
    assert sorted(paths.values()) == ["/var/log/containers", "/var/log/pods"]
    mounts = {mount["name"]: mount for mount in collector["defaultVolumeMounts"]}
    assert {name: mount["mountPath"] for name, mount in mounts.items()} == paths
    assert all(mount["readOnly"] for mount in mounts.values())
    context = collector["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)


def test_lines_go_to_the_store_by_its_service_and_wait_within_bounds(kept: dict[str, Any]) -> None:
    (target,) = values(kept)["remoteWrite"]
    assert target == {"url": f"http://{STORE}.{NAMESPACE}.svc:{STORE_PORT}", "maxDiskUsagePerURL": "2GB"}
    assert values(kept, STORE)["server"]["fullnameOverride"] == STORE
    assert {kept[f"logs-{release}"]["namespace"] for release in (STORE, COLLECTOR)} == {NAMESPACE}


def test_the_store_keeps_lines_for_its_days_on_a_volume_that_can_grow(kept: dict[str, Any]) -> None:
    """And deletes the oldest day before it is full. It runs where its volume can be mounted, and asks no API server."""
    server = values(kept, STORE)["server"]
    assert server["mode"] == "deployment"
    assert (server["retentionPeriod"], server["retentionMaxDiskUsagePercent"]) == ("30d", "85")
    assert server["persistentVolume"] == {"size": "50Gi", "storageClassName": "longhorn-scratch"}
    assert server["nodeSelector"] == {"node.longhorn.io/create-default-disk": "config"}
    assert [entry["key"] for entry in server["tolerations"]] == ["nvidia.com/gpu"]
    assert values(kept, STORE)["serviceAccount"]["automountToken"] is False


def test_a_node_of_many_cores_costs_no_more_memory(kept: dict[str, Any], sent: dict[str, Any]) -> None:
    """Buffers are by core, and an HGX node has hundreds; the limits are in MiB."""
    for entries in (values(kept)["env"], values(sent)["env"], values(kept, STORE)["server"]["env"]):
        assert {"name": "GOMAXPROCS", "value": "4"} in entries


@pytest.mark.row("004.11")
def test_who_reaches_whom(kept: dict[str, Any], sent: dict[str, Any]) -> None:
    """The store has no login: its collectors and what measures reach it, and it reaches nothing."""
    store = kept[f"logs-network-policy-{STORE}"]["spec"]
    assert (store["policyTypes"], store.get("egress")) == (["Ingress", "Egress"], None)
    pods = kept[f"logs-network-policy-{COLLECTOR}"]["spec"]["podSelector"]["matchLabels"]
    peers = [peer["podSelector"]["matchLabels"] for rule in store["ingress"] for peer in rule["from"]]
    assert peers == [pods, prometheus.LABELS]
    (measures,) = sent[f"logs-network-policy-{COLLECTOR}"]["spec"]["ingress"]
    assert [peer["podSelector"]["matchLabels"] for peer in measures["from"]] == [prometheus.LABELS]
    assert f"logs-network-policy-{STORE}" not in sent
    admits = kept[f"{NAMESPACE}-namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert admits == "privileged"


def test_a_store_of_the_sites_gets_lines_with_a_token_that_is_named_alone(sent: dict[str, Any]) -> None:
    """Pods start without the Secret: `up` does not wait for it, and lines wait on the nodes."""
    assert f"logs-{STORE}" not in sent
    (target,) = values(sent)["remoteWrite"]
    assert (target["url"], target["format"]) == ("https://logs.site.example", "native")
    token, roots = values(sent)["extraVolumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in values(sent)["extraVolumeMounts"]}
    assert token["secret"] == {"secretName": "log-token", "optional": True}
    assert target["bearerTokenFile"] == f"{mounts['token']}/token"
    (trusted,) = values(sent)["extraObjects"]
    assert trusted["data"]["roots.pem"].strip() == ROOT.strip()
    assert roots["configMap"]["name"] == trusted["metadata"]["name"]
    assert {"name": "SSL_CERT_DIR", "value": mounts["roots"]} in values(sent)["env"]
    assert f"Secret {NAMESPACE}/log-token with token" in by_hand(planned(SENT))


@pytest.mark.slow
def test_a_store_fills_the_secret_before_the_collectors_start(tmp_path: Path) -> None:
    secrets = {"system": "external_secrets", "store": STORED, "remote": {"log-token": {"key": "platform/logs"}}}
    made, requests = declared(tmp_path, {**SENT, "secrets": secrets})
    assert made["logs-filled-log-token"]["metadata"]["namespace"] == NAMESPACE
    after = {urn.rpartition("::")[2] for urn in requests[f"logs-{COLLECTOR}"].dependencies}
    assert "logs-filled-log-token" in after
    after = {urn.rpartition("::")[2] for urn in requests["logs-filled-log-token"].dependencies}
    assert f"{NAMESPACE}-namespace" in after


def test_what_is_measured_and_what_alerts_are_about_it(kept: dict[str, Any], sent: dict[str, Any]) -> None:
    assert {f"monitoring-monitor-{name}" for name in ("log-collectors", "log-store")} <= kept.keys()
    assert "monitoring-monitor-log-store" not in sent
    named = [{group["name"] for group in made["monitoring-rules"]["spec"]["groups"]} for made in (kept, sent)]
    assert [{"log-collectors", "log-store"} & groups for groups in named] == [
        {"log-collectors", "log-store"},
        {"log-collectors"},
    ]


@pytest.mark.slow
def test_a_site_that_does_not_ask_has_nothing_of_it(kept: dict[str, Any], tmp_path: Path) -> None:
    off = declared(tmp_path, {})[0]
    assert not [name for name in off if name.startswith("logs")]
    rest = {name for name in off if not name.startswith("crds-")}
    # Its jobs are ones that must have a target, and its namespace has pods to look after.
    assert {name for name in rest if kept[name] != off[name]} <= {"monitoring-rules", "monitoring-state"}


def test_preview_states_what_is_kept_and_what_is_not() -> None:
    assert not [text for text in planned({}).texts if text.startswith("logs:")]
    (text,) = [text for text in planned(KEPT).texts if text.startswith("logs:")]
    assert "30 days in VictoriaLogs, on 50 GiB of class longhorn-scratch" in text
    assert "not in them: prompts and answers" in text
    (text,) = [text for text in planned(SENT).texts if text.startswith("logs:")]
    assert "at https://logs.site.example" in text


def test_its_volume_is_counted_on_the_disks() -> None:
    (volume,) = log_volumes(planned(KEPT).site)
    assert volume.size_bytes == LogsSpec(system="victoria_logs").volume_gib * 2**30
    assert volume.copies > 1
    assert any("log store 53.7 GB; 2 copies" in text for text in planned(KEPT).texts)
    assert not log_volumes(planned({}).site)


WRONG = {
    "too large": Wrong(
        {"logs": {"system": "victoria_logs", "volume_gib": 16384}},
        "logs.volume_gib",
        "is too large for the disks",
        {"logs.volume_gib": 50},
    ),
    "no store": Wrong(
        {"logs": {"system": "external"}},
        "logs",
        "lacks address",
        {"logs.address": "https://logs.site.example"},
    ),
    "not read": Wrong(
        {"logs": {"keep_days": 7}},
        "logs",
        "keep_days set, and system none reads nothing of it",
        {"logs.system": "victoria_logs"},
    ),
    "another's key": Wrong(
        {"logs": {"system": "victoria_logs", "token_secret": "x"}},
        "logs",
        "token_secret set, and system victoria_logs reads nothing of it",
        {"logs.token_secret": None},
    ),
    "in the clear": Wrong(
        {"logs": {"system": "external", "address": "http://logs.site.example"}},
        "logs.address",
        "the https address of a store",
        {"logs.address": "https://logs.site.example"},
    ),
    "no class": Wrong(
        {**KEPT, "storage": {"system": "external", "storage_class": "shared"}, "cluster.machines.hgx.storage": None},
        "logs",
        "lacks storage_class",
        {"logs.storage_class": "local"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_site_that_cannot_work_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
