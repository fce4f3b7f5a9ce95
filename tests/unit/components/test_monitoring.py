"""Monitoring: what is scraped under which labels, who may read metrics, and what each program may do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.gateways import AI_GATEWAY, ENVOY_GATEWAY
from components.addons.gpu_stack import GPU_OPERATOR
from components.addons.longhorn import LONGHORN
from components.gateway import gateway, gateway_controllers
from components.models import inference_pool
from components.monitoring import alertmanager, kube_state_metrics, operator, prometheus, rules, scraping
from components.monitoring.dashboard_config_maps import dashboard_config_maps
from components.monitoring.dashboards.boards import BOARDS
from components.monitoring.monitoring import NAMESPACE, Monitoring, MonitoringArgs, scrapers
from components.monitoring.pods import release_of
from components.monitoring.rules import Measured
from components.monitoring.scraping import pod_monitor
from components.placing import Placing
from components.scrape_target import ScrapeTarget
from components.specs.gateway import GatewaySpec
from components.specs.monitoring import MonitoringSpec
from floor.headers import CLIENT_HEADER
from lab.plugins.kubernetes.awaiting.expressions import parse
from manifests import grafana
from tests.alert_site import PROMISE
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime

pytestmark = pytest.mark.row("002.09")

OWN = MonitoringSpec(system="prometheus_operator", storage_class="fast")
OTHERS = MonitoringSpec(system="external", scraper_namespace="watch", labels={"release": "stack"})
IMAGES = {
    "prometheus": "registry.example/prometheus:v3.1.0",
    "alertmanager": "registry.example/alertmanager:v0.1.0",
    "prometheus_operator": "registry.example/operator:v0.2.0",
    "config_reloader": "registry.example/reloader:v0.2.0",
    "kube_state_metrics": "registry.example/state:v2.0.0",
}
PAGE = Path(__file__).parents[3] / "docs" / "observability.md"
ANYWHERE = Placing(node_selector={}, tolerations=())
READS = {"get", "list", "watch"}


def requests(spec: MonitoringSpec, *, proxies: str | None = "e") -> dict[str, Any]:
    """Inputs of each Kubernetes object that is declared, by name."""
    recorder = Recorder()

    async def run() -> None:
        args = MonitoringArgs(
            spec=spec,
            site="berlin",
            images=IMAGES,
            targets=scraping.serving_targets("m", "g", proxies),
            promise=PROMISE,
            measured=Measured(parts=(), servers=spec.system == "prometheus_operator"),
            storage_class="fast",
            placing=ANYWHERE,
            needs=[],
        )
        Monitoring("monitoring", args)
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    made = {name: request for name, request in recorder.requests.items() if request.custom}
    return {name: deserialize_properties(request.object) for name, request in made.items()}


def endpoint(target: ScrapeTarget) -> dict[str, Any]:
    (only,) = pod_monitor(target, NAMESPACE, {})["spec"]["podMetricsEndpoints"]
    return dict(only)


def targets() -> dict[str, ScrapeTarget]:
    made = [
        *scraping.serving_targets("m", "g", "e"),
        *(target for addon in (ENVOY_GATEWAY, AI_GATEWAY, GPU_OPERATOR, LONGHORN) for target in addon.targets),
        *scraping.own_targets(),
    ]
    return {target.name: target for target in made}


def test_each_target_has_the_job_that_rules_and_dashboards_ask_for() -> None:
    jobs = {
        "alertmanager",
        "gateway-controllers",
        "gpus",
        "inference-engines",
        "inference-pickers",
        "inference-proxies",
        "inference-requests",
        "kube-state-metrics",
        "prometheus",
        "prometheus-operator",
        "storage",
    }
    assert {target.job for target in targets().values()} == jobs
    for target in targets().values():
        named = endpoint(target)["relabelings"][0]
        assert (named["targetLabel"], named["replacement"]) == ("job", target.job)


def test_no_two_targets_read_one_port_of_one_pod() -> None:
    """Each sample is there once."""
    places = [(target.namespace, tuple(sorted(target.pods.items())), target.port) for target in targets().values()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("name", ["engines", "pickers"])
def test_models_are_named_as_the_site_names_them(name: str) -> None:
    (label,) = endpoint(targets()[name])["relabelings"][1:]
    assert label["targetLabel"] == "model"
    key = next(key for key in inference_pool.picker_labels("chat") if key.endswith("instance"))
    assert label["sourceLabels"] == [f"__meta_kubernetes_pod_label_{key.replace('.', '_').replace('/', '_')}"]


@pytest.mark.row("004.13")
def test_requests_count_for_the_tenant_of_their_client() -> None:
    """The AI gateway knows the client by the header that the key check writes."""
    values = gateway_controllers.ai_gateway_values(1, "not-a-seed", measured=True)
    assert values["controller"]["metricsRequestHeaderAttributes"] == f"{CLIENT_HEADER}:client"
    tenant = endpoint(targets()["requests"])["metricRelabelings"][-1]
    assert (tenant["sourceLabels"], tenant["targetLabel"]) == (["client"], "tenant")


def test_requests_are_kept_without_buckets_that_no_one_asks_for() -> None:
    """They are half of what each pair of client and model adds, and a target may send so much and no more."""
    dropped = endpoint(targets()["requests"])["metricRelabelings"][0]
    assert (dropped["action"], dropped["sourceLabels"]) == ("drop", ["__name__"])
    name = dropped["regex"]
    assert name == "gen_ai_client_token_usage_bucket"
    asked = [query.expression for board in BOARDS for panel in board.panels() for query in panel.queries]
    asked += [rule["expr"] for group in rules.groups(PROMISE) for rule in group["rules"]]
    assert any("gen_ai_client_token_usage_sum" in expression for expression in asked)
    assert [expression for expression in asked if name in expression] == []


def test_the_limits_of_a_target_hold_as_many_clients_as_the_page_states() -> None:
    """Per pair of client and model: 142 samples of some 335 bytes, of which 67 are kept."""
    spec = requests(OWN)["monitoring-prometheus"]["spec"]
    most_bytes = int(spec["enforcedBodySizeLimit"].removesuffix("MB")) * 2**20
    pairs = min(spec["enforcedSampleLimit"] // 67, most_bytes // (142 * 335))
    stated = re.search(r"some ([0-9,]+) pairs of client and model", PAGE.read_text())
    assert stated
    assert pairs // 100 * 100 == int(stated[1].replace(",", ""))


def test_what_an_exporter_knows_of_others_is_not_taken_for_its_own() -> None:
    """kube-state-metrics and Longhorn name the pods, nodes and volumes that they speak about."""
    assert {name for name, target in targets().items() if target.own_labels_win} == {"kube-state-metrics", "storage"}


@pytest.mark.row("004.11")
def test_metrics_are_read_by_what_measures_alone() -> None:
    """And where nothing measures, every policy is what it was."""
    spec = GatewaySpec(port=80)
    assert scrapers(MonitoringSpec()) == []
    for system, namespace in ((OWN, NAMESPACE), (OTHERS, "watch")):
        peers = scrapers(system)
        (peer,) = peers
        assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": namespace}
        policies = [
            gateway.front_policy("e", "g", spec, peers),
            inference_pool.picker_network_policy("chat", "m", [{"podSelector": {}}], peers),
            *gateway_controllers.network_policies(peers),
        ]
        opened = {port["port"] for policy in policies for port in policy["spec"]["ingress"][-1]["ports"]}
        assert opened == {19001, 1064, 9090, 8080}
        assert all(policy["spec"]["ingress"][-1]["from"] == peers for policy in policies)


@pytest.mark.row("004.11")
@pytest.mark.parametrize("spec", [OWN, OTHERS], ids=lambda spec: spec.system)
def test_of_a_namespace_that_measures_prometheus_alone_reads(spec: MonitoringSpec) -> None:
    """An engine's port has its whole API, without a key. The operator gives this label to each Prometheus."""
    (peer,) = scrapers(spec)
    chosen = peer["podSelector"]["matchLabels"]
    assert chosen["app.kubernetes.io/name"] == "prometheus"


def test_a_pod_of_envoy_starts_again_for_what_is_measured_of_requests() -> None:
    """The AI gateway gives its processor the headers to count by when the pod is made."""
    spec = GatewaySpec(port=80)
    deployments = [
        gateway.envoy_proxy("g", spec, drain_s=1, measured=measured)["spec"]["provider"]["kubernetes"][
            "envoyDeployment"
        ]
        for measured in (False, True)
    ]
    assert "annotations" not in deployments[0]["pod"]
    assert deployments[1]["pod"]["annotations"]


def test_an_operator_of_the_cluster_gets_monitors_with_its_labels_and_dashboards_and_nothing_else() -> None:
    made = requests(OTHERS)
    kinds = sorted({body["kind"] for body in made.values()})
    assert kinds == ["ConfigMap", "Namespace", "NetworkPolicy", "PodMonitor", "PrometheusRule"]
    monitors = [body for body in made.values() if body["kind"] == "PodMonitor"]
    assert {body["metadata"]["name"] for body in monitors} == {"engines", "pickers", "proxies", "requests"}
    assert all(body["metadata"]["labels"] == {"release": "stack"} for body in [*monitors, made["monitoring-rules"]])
    texts = json.dumps(made["monitoring-rules"])
    assert "ModelLatencyAboveTarget" in texts
    assert "AlertsDoNotArrive" not in texts, "its Alertmanager is the cluster's"


@pytest.mark.parametrize("spec", [OWN, OTHERS], ids=lambda spec: spec.system)
def test_a_measured_site_has_every_dashboard(spec: MonitoringSpec) -> None:
    declared = {name: body for name, body in requests(spec).items() if body["kind"] == "ConfigMap"}
    assert {name: body["data"] for name, body in declared.items()} == {
        f"monitoring-dashboard-{name}": body["data"]
        for name, body in dashboard_config_maps(NAMESPACE, hosts=False).items()
    }
    assert set(dashboard_config_maps(NAMESPACE, hosts=True)) == set(grafana.dashboards()) > {"slo"}


def test_prometheus_selects_every_monitor_of_its_own() -> None:
    made = requests(OWN)
    spec = made["monitoring-prometheus"]["spec"]
    rules = made["monitoring-rules"]
    assert spec["ruleSelector"]["matchLabels"].items() <= rules["metadata"]["labels"].items()
    assert rules["metadata"]["namespace"] == NAMESPACE
    for body in made.values():
        if body["kind"] == "PodMonitor":
            assert spec["podMonitorSelector"]["matchLabels"].items() <= body["metadata"]["labels"].items()
            assert body["metadata"]["namespace"] == NAMESPACE, "it looks in its own namespace alone"
    assert spec["externalLabels"] == {"site": "berlin"}
    assert (spec["version"], spec["retention"], spec["scrapeInterval"]) == ("v3.1.0", "15d", "15s")
    assert 0 < int(spec["retentionSize"].removesuffix("MiB")) < OWN.volume_gib * 1024


def test_prometheus_looks_for_pods_where_targets_are_and_reads_nothing_else() -> None:
    made = requests(OWN)
    roles = [body for name, body in made.items() if name.startswith("monitoring-prometheus-role")]
    granted = {body["metadata"]["namespace"]: body["rules"] for body in roles if body["kind"] == "Role"}
    assert set(granted) == {"m", "e", NAMESPACE}
    asked = {resource for rules in granted.values() for rule in rules for resource in rule["resources"]}
    assert asked == {"pods", "services", "endpointslices"}
    assert {verb for rules in granted.values() for rule in rules for verb in rule["verbs"]} == READS
    assert not [name for name in made if name.startswith("monitoring-prometheus-clusterrole")]


def test_envoys_of_others_are_found_in_any_namespace() -> None:
    made = requests(OWN, proxies=None)
    assert made["monitoring-monitor-proxies"]["spec"]["namespaceSelector"] == {"any": True}
    assert made["monitoring-prometheus-clusterrole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]


def test_the_operator_works_in_its_own_namespace_alone() -> None:
    bodies = operator.operator_permissions(NAMESPACE)
    assert {body["kind"] for body in bodies} == {"ServiceAccount", "Role", "RoleBinding"}
    assert {body["metadata"]["namespace"] for body in bodies} == {NAMESPACE}
    (container,) = operator.operator_deployment(NAMESPACE, image="o:v1.0.0", reloader_image="r:v1.0.0")["spec"][
        "template"
    ]["spec"]["containers"]
    assert f"--namespaces={NAMESPACE}" in container["args"]
    assert "--prometheus-config-reloader=r:v1.0.0" in container["args"], "the operator's default is another registry's"


def test_kube_state_metrics_lists_what_it_may_and_no_secret() -> None:
    bodies = kube_state_metrics.state_permissions(NAMESPACE, ["m", "e"])
    allowed = {
        resource
        for body in bodies
        for rule in body.get("rules", ())
        for resource in rule["resources"]
        if set(rule["verbs"]) == {"list", "watch"}
    }
    (container,) = kube_state_metrics.state_deployment(NAMESPACE, ["m", "e"], image="s:v1.0.0")["spec"]["template"][
        "spec"
    ]["containers"]
    flags = dict(argument.removeprefix("--").split("=") for argument in container["args"])
    assert set(flags["resources"].split(",")) == allowed
    assert not allowed & {"secrets", "configmaps"}
    assert flags["namespaces"] == "e,m"


def test_every_pod_passes_the_strictest_pod_security() -> None:
    made = requests(OWN)
    assert made["inference-monitoring-namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "restricted"
    )
    pods = [
        body["spec"]["template"]["spec"] if body["kind"] == "Deployment" else body["spec"]
        for body in made.values()
        if body["kind"] in ("Deployment", "Prometheus", "Alertmanager")
    ]
    assert len(pods) == 4
    for pod in pods:
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        assert pod.get("resources") or pod["containers"][0]["resources"]
        for container in pod.get("containers", ()):
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_up_waits_until_prometheus_has_its_configuration_and_answers() -> None:
    made = requests(OWN)
    waits = made["monitoring-prometheus"]["metadata"]["annotations"]["pulumi.com/waitFor"]
    assert len(parse(waits)) == 2
    assert "Available" in waits
    assert "Reconciled" in waits


def test_alerts_go_where_the_sites_secret_leads_them() -> None:
    without, with_one = (
        requests(OWN.model_copy(update={"alerts_secret": secret}))["monitoring-alertmanager"]["spec"]
        for secret in (None, "pager")
    )
    assert "configSecret" not in without
    assert with_one["configSecret"] == "pager"
    assert "volumes" not in without
    (receiver,) = requests(OWN)["monitoring-prometheus"]["spec"]["alerting"]["alertmanagers"]
    assert receiver["name"] == "alertmanager-operated"


def test_two_pods_of_each_server_are_apart_and_reach_each_other() -> None:
    """Without the mesh, which the namespace's policies would close, each Alertmanager would send every alert."""
    made = requests(OWN.model_copy(update={"copies": 2}))
    for server, labels in (("prometheus", prometheus.LABELS), ("alertmanager", alertmanager.LABELS)):
        spec, budget = made[f"monitoring-{server}"]["spec"], made[f"monitoring-{server}-disruption-budget"]["spec"]
        assert spec["replicas"] == 2
        (apart,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
        unready = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
        assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}, **unready}
    # Its name is the operator's own, which takes it out of alerts.
    assert "replicaExternalLabelName" not in made["monitoring-prometheus"]["spec"]
    scraped, mesh = made["monitoring-network-policy-alertmanager"]["spec"]["ingress"]
    assert scraped["from"] == [{"podSelector": {"matchLabels": prometheus.LABELS}}]
    assert mesh["from"] == [{"podSelector": {"matchLabels": alertmanager.LABELS}}]
    assert mesh["ports"] == [{"protocol": "TCP", "port": 9094}, {"protocol": "UDP", "port": 9094}]
    assert not any("budget" in name for name in requests(OWN))


@pytest.mark.parametrize(
    ("image", "release"),
    [("r/p:v1.2.3", "v1.2.3"), ("r:5000/p:v1.2.3", "v1.2.3"), ("r/p:v1.2.3@sha256:ab", "v1.2.3")],
)
def test_a_release_is_read_from_its_image(image: str, release: str) -> None:
    assert release_of(image) == release


def test_prometheus_is_what_its_own_namespaces_policies_let_in() -> None:
    made = requests(OWN)
    policies = [
        body
        for name, body in made.items()
        if body["kind"] == "NetworkPolicy" and name.startswith("monitoring-network-policy")
    ]
    assert len(policies) == 3
    for policy in policies:
        (rule,) = policy["spec"]["ingress"]
        assert rule["from"] == [{"podSelector": {"matchLabels": prometheus.LABELS}}]


@pytest.mark.parametrize("server", ["prometheus", "alertmanager"])
def test_what_was_measured_outlives_a_changed_size_or_class(server: str) -> None:
    """The operator deletes the StatefulSet for either and makes it again; the claim must be there for the new one."""
    kept = requests(OWN)[f"monitoring-{server}"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert kept == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_up_waits_for_the_secret_that_leads_alerts() -> None:
    """Without it, or without its key, the operator would take a configuration that sends nothing, and be content."""
    made = requests(OWN.model_copy(update={"alerts_secret": "pager"}))["monitoring-alertmanager"]
    (volume,) = made["spec"]["volumes"]
    (mount,) = made["spec"]["volumeMounts"]
    assert mount["name"] == volume["name"], "a kubelet waits for the volumes that containers mount"
    assert mount["readOnly"]
    secret = volume["secret"]
    assert secret["secretName"] == made["spec"]["configSecret"] == "pager"
    assert [item["key"] for item in secret["items"]] == ["alertmanager.yaml"]
    assert not secret.get("optional")
    assert made["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Available"


@pytest.mark.parametrize("spec", [OWN, OTHERS], ids=lambda spec: spec.system)
def test_alerts_link_to_runbooks_where_the_site_publishes_them(spec: MonitoringSpec) -> None:
    def annotations(published: str | None) -> list[dict[str, str]]:
        made = requests(spec.model_copy(update={"runbooks_url": published}))["monitoring-rules"]["spec"]["groups"]
        return [rule["annotations"] for group in made for rule in group["rules"] if "alert" in rule]

    commands = annotations(None)
    assert commands
    assert not [texts for texts in commands if "runbook_url" in texts]
    for address in ("https://pages.example/runbooks", "https://pages.example/runbooks/"):
        assert annotations(address) == [
            {**texts, "runbook_url": f"https://pages.example/runbooks/{texts['runbook'].split()[-1]}.md"}
            for texts in commands
        ]
