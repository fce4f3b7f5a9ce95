"""Every builder's object in wire format, against golden files.

To accept a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/spine
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components import namespace
from components.addons import gpu_stack, longhorn
from components.addons.addon import Offer
from components.addons.gateways import AI_GATEWAY, ENVOY_GATEWAY
from components.addons.gpu_stack import GPU_OPERATOR
from components.addons.longhorn import LONGHORN
from components.gateway import envoy_names, front_door, gateway, gateway_protection, traffic_policies
from components.gateway.gateway_controllers import ai_gateway_values, envoy_gateway_values, network_policies
from components.gateway.gateway_errors import openai_errors
from components.gateway.pickers import Picker, picker_policy
from components.models import inference_pool, model_route, model_server, node_weights, weights
from components.models.engines import PORT
from components.monitoring import alertmanager, kube_state_metrics, monitoring, operator, prometheus, scraping
from components.network_policies import deny_ingress, peer
from components.placing import Placing, budget
from components.specs.gateway import GatewaySpec
from components.specs.inference_pool import picker_name
from components.specs.longhorn import LonghornSpec
from components.specs.monitoring import MonitoringSpec
from components.tenants import access, tiers
from components.tenants.model_list import model_list
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER, TRUSTED_HEADERS
from floor.taints import GPU_TAINT, tolerations
from stacks.facts import versions
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_file, plan_site, plan_values
from tests.unit import golden_files
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.16", "000.22", "000.27", "000.30", "000.31", "000.36")

ROOT = Path(__file__).parents[3]
IMAGES = versions.load().images
PROXIES = peer(gateway.proxy_labels("g"), "envoy-gateway-system")


def model_objects(site_file: str, name: str) -> list[dict[str, Any]]:
    model = plan_file(ROOT / site_file).models[name].stable
    spec, plan, engine = model.spec, model.server, model.engine
    return [
        weights.claim(
            name, "m", labels=model_server.labels(name), weight_bytes=plan.weight_bytes, storage_class="longhorn"
        ),
        model_server.deployment(
            name, "m", spec.server, plan, engine, model.weights, unfilled=weights.claim_name(name, "longhorn")
        ),
        *weights_objects(model),
        budget(name, "m", model_server.labels(name), max_unavailable=plan.max_unavailable),
        model_server.network_policy(name, "m", [PROXIES, peer(inference_pool.picker_labels(name))], engine.egress),
        inference_pool.inference_pool(name, "m", selector=model_server.labels(name), port=PORT),
        inference_pool.picker_config(name, "m", spec.pool, model.picker),
        *inference_pool.picker_rbac(name, "m"),
        inference_pool.picker_service(name, "m"),
        inference_pool.picker_deployment(
            name, "m", spec.pool, image=IMAGES.endpoint_picker, longest_stream_s=60, config_digest="0" * 16
        ),
        budget(picker_name(name), "m", inference_pool.picker_labels(name)),
        inference_pool.picker_network_policy(name, "m", [PROXIES]),
        model_route.parallel_limit(name, "m", requests=model.parallel_requests, connections=65_536),
        model_route.ai_gateway_route(
            name,
            "m",
            model=name,
            gateway="inference",
            gateway_namespace="g",
            request_timeout_s=3600,
            owned_by=engine.owned_by,
        ),
    ]


def weights_objects(model: RevisionPlan) -> list[dict[str, Any]]:
    """Without the ConfigMap, whose content is the program's own text."""
    if model.weights is None:
        return []
    return [
        build(model.model, "m", model.weights) for build in (weights.job, weights.prune_job, weights.network_policy)
    ]


def node_weights_objects() -> list[dict[str, Any]]:
    model = plan_values(changed(prod(), ON_NODES), "site.yaml").models["glm-5-1"].stable
    assert model.weights
    return [
        node_weights.volume("m", model.weights),
        node_weights.claim("m", model.weights),
        node_weights.first_job("glm-5-1", "m", model.weights, model.spec.server.gpu_family),
        node_weights.daemon_set("glm-5-1", "m", model.weights, model.spec.server.gpu_family),
        model_server.deployment("glm-5-1", "m", model.spec.server, model.server, model.engine, model.weights),
    ]


def gateway_objects(site_file: str) -> list[dict[str, Any]]:
    plan = plan_file(ROOT / site_file)
    site = plan.site
    tenant = min(site.tenants)
    return [
        namespace.namespace("g", "restricted"),
        deny_ingress("g"),
        gateway.gateway_class(),
        gateway.envoy_proxy("g", site.gateway, drain_s=60),
        gateway.gateway_config("g", site.gateway),
        gateway.gateway("g", site.gateway),
        traffic_policies.client_traffic_policy("g", site.gateway),
        traffic_policies.backend_traffic_policy("g", site.gateway, body_kib=plan.body_kib),
        openai_errors("g", traffic_policies.target_gateway(), listener="g/inference/inference", tls=False),
        access.keys_secret(tenant, site.tenants[tenant], "g", {"laptop": "not-a-key"}),
        access.security_policy("g", traffic_policies.target_gateway(), site.tenants, list(site.models)),
        front_door.front_door(
            "g",
            traffic_policies.target_gateway(),
            listener=gateway.listener_name("g"),
            port=envoy_names.door_port(site.gateway.port),
            tls=bool(site.gateway.certificate_secret),
        ),
        *(
            picker_policy(
                "g",
                traffic_policies.target_gateway(),
                listener=gateway.listener_name("g"),
                picker=Picker(
                    pool=name, namespace="m", authority=inference_pool.picker_authority(name, "m"), parallel=2000
                ),
            )
            for name in sorted(site.models)
        ),
        front_door.listed_models(
            "g",
            traffic_policies.target_gateway(),
            listener=gateway.listener_name("g"),
            model_lists={"acme": model_list(dict.fromkeys(site.models, "somebody"))},
            names={alias: name for name, spec in site.models.items() for alias in spec.aliases},
        ),
        gateway_protection.admission_policy(["g", "m"], "inference-platform-lab"),
        gateway_protection.admission_binding(traffic_policies.GATEWAY, "g"),
        gateway_protection.routes_policy(["g", "m"], "inference-platform-lab"),
        gateway_protection.routes_binding(),
        tiers.caller_policy("g", traffic_policies.target_gateway(), [tiers.tiers_script(plan.tenants.tier_of)]),
        *(
            tiers.inference_objective(tier, spec, name, "m")
            for tier, spec in site.tiers.items()
            for name in sorted(site.models)
        ),
    ]


def monitoring_objects() -> list[dict[str, Any]]:
    spec = MonitoringSpec(system="prometheus_operator", alerts_secret="pager")
    placing = Placing(node_selector={"disks": "yes"}, tolerations=tuple(tolerations([GPU_TAINT])))
    targets = [
        *scraping.serving_targets("m", "g", "e"),
        *(target for addon in (ENVOY_GATEWAY, AI_GATEWAY, GPU_OPERATOR, LONGHORN) for target in addon.targets),
        *scraping.own_targets(),
    ]
    scrapers = monitoring.scrapers(spec)
    return [
        *(scraping.pod_monitor(target, "o", prometheus.SELECTED) for target in targets),
        *operator.operator_permissions("o"),
        operator.operator_deployment("o", image="operator:v1.0.0", reloader_image="reloader:v1.0.0"),
        *kube_state_metrics.state_permissions("o", ["m"]),
        kube_state_metrics.state_deployment("o", ["m"], image="state:v1.0.0"),
        *prometheus.prometheus_permissions("o", ["m"], everywhere=True),
        prometheus.prometheus("o", spec, site="s", image="prometheus:v1.0.0", storage_class="c", placing=placing),
        alertmanager.alertmanager("o", image="alerts:v1.0.0", secret="pager", storage_class="c", placing=placing),
        *monitoring.network_policies(),
        *network_policies(scrapers),
        gateway.front_policy("e", "g", GatewaySpec(port=80), scrapers),
        inference_pool.picker_network_policy("chat", "m", [PROXIES], scrapers),
        ai_gateway_values(1, "not-a-seed", measured=True),
    ]


CASES = {
    "monitoring": lambda: monitoring_objects(),
    "gateway-lab": lambda: gateway_objects("Pulumi.lab.yaml"),
    "gateway-prod": lambda: gateway_objects("Pulumi.prod.yaml"),
    "model-simulator": lambda: model_objects("Pulumi.lab.yaml", "glm-5-1"),
    "model-vllm": lambda: model_objects("Pulumi.prod.yaml", "glm-5-1"),
    "model-data-parallel": lambda: model_objects("tests/fixtures/sites/valid/layouts.yaml", "deepseek"),
    "model-drafts": lambda: model_objects("tests/fixtures/sites/valid/optimisations.yaml", "llama"),
    "model-one-gpu": lambda: model_objects("Pulumi.prod.yaml", "qwen3-32b"),
    "model-on-a-slice": lambda: model_objects("tests/fixtures/sites/valid/slices.yaml", "embed"),
    "node-weights": lambda: node_weights_objects(),
    "gpu-stack": lambda: [
        gpu_stack.operator_values([GPU_TAINT]),
        gpu_stack.device_plugin_values([GPU_TAINT]),
        gpu_stack.exporter_values([GPU_TAINT]),
        gpu_stack.runtime_class(),
        gpu_stack.offered("hgx-1", Offer(resource="nvidia.com/gpu", count=8), "gpu-operator-v1"),
        gpu_stack.validated("gpu-operator-v1"),
        gpu_stack.operator_values([GPU_TAINT], cuts=True),
        gpu_stack.offered("hgx-2", Offer(resource="nvidia.com/mig-1g.18gb", count=56), "gpu-operator-v1"),
    ],
    "longhorn": lambda: [
        longhorn.longhorn_values(
            LonghornSpec(), engine="v1", taints=[GPU_TAINT], selects_nodes=True, keeping="protected"
        ),
        *longhorn.storage_classes("longhorn", LonghornSpec(), "v1"),
        *longhorn.network_policies(),
        longhorn.managed(2, "longhorn-1"),
        longhorn.stored("hgx-1", ["longhorn-0"], "longhorn-1"),
    ],
    "chart-values": lambda: [
        envoy_gateway_values("cluster.local"),
        ai_gateway_values(1, "not-a-seed"),
        *network_policies(),
    ],
}


@pytest.mark.parametrize("case", sorted(CASES, key=lambda case: case in golden_files.OVER))
def test_objects_are_as_agreed(case: str) -> None:
    built = CASES[case]()
    golden_files.agree(case, built)
    assert golden_files.by_place(golden_files.agreed(case)) == golden_files.by_place(built)


def served_by(engine: str) -> dict[str, Any]:
    """The Deployment of the reference site's GLM-5.1 with that engine."""
    site = plan_file(ROOT / "Pulumi.prod.yaml").site
    spec = site.models["glm-5-1"]
    server = spec.server.model_copy(update={"engine": engine})
    models = {**site.models, "glm-5-1": spec.model_copy(update={"server": server})}
    model = plan_site(site.model_copy(update={"models": models})).models["glm-5-1"].stable
    planned = plan_file(ROOT / "Pulumi.prod.yaml").models["glm-5-1"].stable
    return model_server.deployment("glm-5-1", "m", server, planned.server, model.engine, planned.weights)


def test_vllm_and_simulator_differ_in_the_engine_alone() -> None:
    """The lab's Deployment is production's but for image, arguments, environment, readiness path and hold time.

    And for CPU and memory, which only vLLM requests; and for what the container that watches it is given.
    """
    real, simulated = served_by("vllm"), served_by("simulator")
    for body in (real, simulated):
        pod = body["spec"]["template"]["spec"]
        pod.pop("runtimeClassName", None)
        container = pod["containers"][0]
        del pod["initContainers"][-1]["args"]
        for key in ("image", "args", "env", "lifecycle"):
            del container[key]
        requests = container["resources"]["requests"]
        for name in ("cpu", "memory"):
            assert (requests.pop(name, None) is None) == (body is simulated)
        for probe in ("startupProbe", "readinessProbe"):
            del container[probe]["httpGet"]["path"]
    assert real == simulated


def test_grace_outlasts_notice_hold_and_the_longest_stream() -> None:
    server = plan_file(ROOT / "Pulumi.prod.yaml").site.models["glm-5-1"].server
    for engine in ("vllm", "simulator"):
        body = served_by(engine)
        pod = body["spec"]["template"]["spec"]
        hold = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert hold >= model_server.NOTICE_S
        assert pod["terminationGracePeriodSeconds"] >= server.longest_stream_s + model_server.NOTICE_S
        assert hold < pod["terminationGracePeriodSeconds"]


# What the pinned AI gateway (internalapi) and endpoint picker (pkg/epp/metadata) read, copied from there manually.
DECIDES_INSIDE = {
    "endpoint-load-metrics-format",
    "x-data-parallel-rank",
    "x-vllm-priority",
    "x-ai-eg-model",
    "x-ai-eg-original-path",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-fairness-id",
    "x-gateway-inference-objective",
    "x-gateway-model-name-rewrite",
    "x-inference-refusal",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-llm-d-slo-tpot-ms",
    "x-llm-d-slo-ttft-ms",
    "x-prefiller-host-port",
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
}


def test_every_header_that_decides_inside_is_dropped_at_the_door() -> None:
    """Spoofed identity, model, destination or priority never reaches a filter that trusts it."""
    spec = GatewaySpec(port=80)
    removed = traffic_policies.client_traffic_policy("g", spec)["spec"]["headers"]["earlyRequestHeaders"]["remove"]
    assert sorted(removed) == sorted(DECIDES_INSIDE)
    assert {CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER} <= DECIDES_INSIDE


def test_no_name_becomes_code() -> None:
    """What runs in Envoy is the same on every site: tenants and tiers are its data."""
    first, other = (tiers.tiers_script(of) for of in ({}, {"a": "b", "'..os.exit()..'": "c"}))
    assert first["inline"] == other["inline"]
    assert other["filterContext"] == {"a": "b", "'..os.exit()..'": "c"}
    assert f'"{OBJECTIVE_HEADER}"' in first["inline"]
    assert OBJECTIVE_HEADER in TRUSTED_HEADERS


def test_endpoint_url() -> None:
    http, https = GatewaySpec(port=80), GatewaySpec(port=443, certificate_secret="tls")
    status = {"addresses": [{"type": "IPAddress", "value": "192.0.2.7"}]}
    assert gateway.endpoint_url(status, http) == "http://192.0.2.7/v1"
    assert gateway.endpoint_url(status, https) == "https://192.0.2.7/v1"
    other = GatewaySpec(port=8443, certificate_secret="tls")
    assert gateway.endpoint_url(status, other) == "https://192.0.2.7:8443/v1"
    assert gateway.endpoint_url(None, http) == ""
