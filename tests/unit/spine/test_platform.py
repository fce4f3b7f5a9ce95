"""The whole program under the SDK's mocks: what is declared, in which order, and what stays secret."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.crd_bundle import CrdBundleError, read_bundle
from components.machines.machine_commands import LIMITS, Limits
from components.specs.monitoring import MonitoringSpec
from stacks.facts import versions
from stacks.facts.versions import CrdSource, Versions
from stacks.plan.site_plan import plan_file, plan_site, plan_values
from stacks.program.platform import declare_platform
from stacks.site.model import SiteConfig
from tests.unit.pulumi_runtime import in_own_runtime
from tests.unit.stacks.site_examples import ON_NODES, prod, under_later_operator
from tests.unit.stacks.test_wrong_bgp import site as bgp_site
from tests.unit.stacks.wrong_sites import changed
from tests.unit.talos import talos_examples as examples

pytestmark = pytest.mark.row("000.10", "C.01", "C.05")

ROOT = Path(__file__).parents[3]


class Recorder(pulumi.runtime.Mocks):
    """Answers as an engine would in `up`, and remembers what was declared."""

    def __init__(self) -> None:
        self.resources: dict[str, pulumi.runtime.MockResourceArgs] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.resources[args.name] = args
        outputs = dict(args.inputs)
        if args.typ == "kubernetes:gateway.networking.k8s.io/v1:Gateway":
            outputs["status"] = {"addresses": [{"value": "192.0.2.7"}]}
        if args.typ == "command:local:Command":
            outputs["stdout"] = examples.bundle().export() if "talos secrets" in args.inputs["create"] else "sk-canary"
        return args.name, outputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


class Recording(MockMonitor):
    """Keeps what an engine gets for each resource, by name."""

    def __init__(self, mocks: Recorder) -> None:
        super().__init__(mocks)
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        self.requests[request.name] = request
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


def declare(
    site: SiteConfig, tmp_path: Path, limits: Limits = LIMITS, pinned: Versions | None = None
) -> tuple[Recorder, dict[str, Any]]:
    recorder = Recorder()
    seen, _ = requested(site, tmp_path, recorder, limits, pinned)
    return recorder, seen


def requested(
    site: SiteConfig,
    tmp_path: Path,
    recorder: Recorder,
    limits: Limits = LIMITS,
    pinned: Versions | None = None,
    manifest: str = "kind: ConfigMap\n",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is seen of the platform, and what an engine gets for each resource. manifest: Cilium's."""
    bundle = tmp_path / "things.json"
    bundle.write_text('{"items": []}')
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    cilium = tmp_path / "cilium" / "cilium.yaml"
    cilium.parent.mkdir()
    cilium.write_text(manifest)
    machines = site.cluster.machines and site.cluster.machines.model_copy(update={"cilium_manifest": cilium})
    cluster = site.cluster.model_copy(update={"machines": machines})
    crds = site.crds.model_copy(update={"folder": tmp_path})
    site = site.model_copy(update={"crds": crds, "cluster": cluster})
    choice = ("_with_bgp" if site.addresses.bgp else "") + ("_measured" if site.measures_pod_network else "")
    pin = {f"manifest{choice}": hashlib.sha256(cilium.read_bytes()).hexdigest()}
    pins = {
        "crds": {"things.json": digest},
        "crd_versions": {"things.json": "v1.0.0"},
        "crd_sources": {"things.json": CrdSource(file="https://things.example")},
        "cilium": versions.load().cilium.model_copy(update=pin),
    }
    seen: dict[str, Any] = {}

    async def program() -> None:
        platform = declare_platform(plan_site(site, (pinned or versions.load()).model_copy(update=pins)), limits)
        seen["endpoint"] = await platform.endpoint.future()
        seen["keys"] = await platform.keys.future()
        seen["keys_secret"] = await platform.keys.is_secret()
        await wait_for_rpcs()

    monitor = Recording(recorder)
    config = {"inference-platform:registry-password": "canary-password"}
    in_own_runtime(recorder, program, config=config, monitor=monitor)
    return seen, monitor.requests


@pytest.fixture
def lab_site() -> SiteConfig:
    return plan_file(ROOT / "Pulumi.lab.yaml").site


def test_lab_declares_one_of_everything_a_model(lab_site: SiteConfig, tmp_path: Path) -> None:
    recorder, seen = declare(lab_site, tmp_path)
    kinds = [args.typ for name, args in recorder.resources.items() if not name.startswith("monitoring")]
    for kind in (
        "kubernetes:apps/v1:Deployment",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:inference.networking.k8s.io/v1:InferencePool",
        "kubernetes:aigateway.envoyproxy.io/v1beta1:AIGatewayRoute",
    ):
        per_model = 2 if kind.endswith("Deployment") else 1
        assert kinds.count(kind) == per_model * len(lab_site.models), kind
    assert kinds.count("kubernetes:gateway.networking.k8s.io/v1:Gateway") == 1
    assert seen["endpoint"] == "https://192.0.2.7/v1"
    assert seen["keys"] == dict.fromkeys(("acme.laptop", "globex.batch", "globex.laptop"), "sk-canary")
    assert seen["keys_secret"]


def test_the_commands_of_machines_keep_the_limits_that_are_given(lab_site: SiteConfig, tmp_path: Path) -> None:
    recorder, _ = declare(lab_site, tmp_path, Limits(install_s=15))
    assert lab_site.cluster.machines is not None
    for node in lab_site.cluster.machines.nodes:
        assert "--timeout 15s" in recorder.resources[f"machines-nodes-{node}-install"].inputs["create"]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["Pulumi.lab.yaml", "Pulumi.prod.yaml"])
def test_no_input_names_a_folder_of_this_machine(file: str, tmp_path: Path) -> None:
    """A state that one checkout made goes on in another, and on another machine."""
    recorder, _ = declare(plan_file(ROOT / file).site, tmp_path)
    here = {str(ROOT), str(tmp_path), sys.executable, str(Path(sys.executable).resolve())}
    # But the folder of definitions, which these sites name by its whole path.
    inputs = {name: str(args.inputs) for name, args in recorder.resources.items() if name != "crds-things"}
    assert len(inputs) > 50
    assert [name for name, text in inputs.items() if any(folder in text for folder in here)] == []


def test_preview_says_each_model_and_then_where_all_find_room(
    lab_site: SiteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block a model, and one for the site."""
    texts: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", texts.append)
    declare(lab_site, tmp_path)
    assert [text.split(":")[0] for text in texts] == ["glm-5-1", "qwen3-32b", "placement"]


def test_each_tier_is_known_to_each_picker(lab_site: SiteConfig, tmp_path: Path) -> None:
    recorder, _ = declare(lab_site, tmp_path)
    objectives = {
        args.inputs["metadata"]["name"]: args.inputs["spec"]
        for args in recorder.resources.values()
        if args.typ.endswith(":InferenceObjective")
    }
    assert {name: (spec["poolRef"]["name"], spec["priority"]) for name, spec in objectives.items()} == {
        f"{tier}.{model}": (model, spec.priority) for tier, spec in lab_site.tiers.items() for model in lab_site.models
    }
    policy = recorder.resources["tiers-policy"].inputs["spec"]
    assert policy["lua"][0]["filterContext"] == {"acme": "interactive"}


def test_a_site_without_tiers_runs_no_script(lab_site: SiteConfig, tmp_path: Path) -> None:
    tenants = {name: tenant.model_copy(update={"tier": None}) for name, tenant in lab_site.tenants.items()}
    recorder, _ = declare(lab_site.model_copy(update={"tiers": {}, "tenants": tenants}), tmp_path)
    assert not [name for name in recorder.resources if name.startswith("tiers")]


@pytest.mark.slow
def test_production_brings_its_controllers_and_addons(tmp_path: Path) -> None:
    recorder, _ = declare(plan_file(ROOT / "Pulumi.prod.yaml").site, tmp_path)
    releases = [args.inputs for args in recorder.resources.values() if args.typ == "kubernetes:helm.sh/v3:Release"]
    addons = ("cert_manager", "gpu_operator", "longhorn", "node_exporter", "cloudnative_pg", "barman_cloud")
    pins = [versions.load().charts[name] for name in ("envoy_gateway", "ai_gateway", *addons)]
    mirror = "oci://registry.site.example/charts"
    mirrored = {(f"{mirror}/{pin.chart.rpartition('/')[2]}", pin.version) for pin in pins}
    assert {(release["chart"], release["version"]) for release in releases} == mirrored
    own = [release for release in releases if release["name"] in ("eg", "aieg")]
    assert all(release["skipCrds"] for release in own), "definitions come from the bundle alone"
    assert {release["timeout"] for release in own} == {600}


@pytest.mark.slow
@pytest.mark.row("000.12", "000.22")
@pytest.mark.parametrize("brought", [True, False])
def test_replicas_wait_until_every_node_offers_its_gpus_and_stores(brought: bool, tmp_path: Path) -> None:
    """The volume waits too, so that none is made for a replica that cannot run."""
    external = {"cluster.gpu_stack": "external", "storage.system": "external", "storage.longhorn": None}
    site = plan_values(changed(prod(), {} if brought else external), "site.yaml").site
    _, requests = requested(site, tmp_path, Recorder())
    waits = {urn.rpartition("::")[2] for urn in requests["glm-5-1-weights"].dependencies}
    marks = {f"{mark}-hgx-{number}" for mark in ("gpu-stack-offered", "storage-stored") for number in range(1, 5)}
    needed = marks | {"storage-class-longhorn", "storage-longhorn"}
    addons = {name for name in requests if name.startswith(("gpu-stack", "storage"))}
    assert (needed <= waits, bool(addons)) == (brought, brought)


@pytest.mark.slow
@pytest.mark.row("003.09")
def test_servers_wait_for_all_nodes_and_what_fills_these_goes_before_its_claim(tmp_path: Path) -> None:
    """Back on shared volumes, a claim that went first would wait for pods that mount it, and they for nothing."""
    site = plan_values(changed(prod(), ON_NODES), "site.yaml").site
    _, requests = requested(site, tmp_path, Recorder())

    def waits(name: str) -> set[str]:
        needed = requests[f"qwen3-32b-{name}"].dependencies
        return {urn.rpartition("::")[2].removeprefix("qwen3-32b-") for urn in needed}

    assert "nodes" in waits("server")
    assert {"bring", "node-weights"} <= waits("nodes")
    assert {"node-weights", "pod-programs-weights", "order", "weights-policy"} <= waits("bring")
    assert "pod-programs-liveness" in waits("server")
    assert "node-volume" in waits("node-weights")
    patience = [requests[f"qwen3-32b-{name}"].customTimeouts.create for name in ("bring", "nodes")]
    assert patience[0]
    assert patience[0] == patience[1], "both bring the same bytes"


def test_replicas_on_slices_wait_until_the_node_that_is_cut_offers_them(tmp_path: Path) -> None:
    """The whole program on a site with both: one chart, one mark for each node, each of what it offers."""
    plan = under_later_operator(plan_file(ROOT / "tests" / "fixtures" / "sites" / "valid" / "slices.yaml"))
    recorder, _ = declare(plan.site, tmp_path, pinned=plan.versions)
    resources = recorder.resources
    waits = {
        name.rpartition("offered-")[2]: args.inputs["metadata"]["annotations"]["pulumi.com/waitFor"]
        for name, args in resources.items()
        if "gpu-stack-offered-" in name
    }
    assert waits == {
        "hgx-1": "jsonpath={.status.allocatable['nvidia.com/gpu']}=8",
        "hgx-2": "jsonpath={.status.allocatable['nvidia.com/gpu']}=8",
        "hgx-3": "jsonpath={.status.allocatable['nvidia.com/mig-1g.18gb']}=56",
    }
    limits = {
        name: resources[f"{name}-server"].inputs["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for name in plan.models
    }
    slice_of = {"nvidia.com/mig-1g.18gb": "1"}
    assert limits == {"chat": {"nvidia.com/gpu": "1"}, "embed": slice_of, "rerank": slice_of}
    assert resources["gpu-stack-gpu-operator"].inputs["values"]["mig"] == {"strategy": "mixed"}


@pytest.mark.row("002.04")
def test_requests_to_rank_go_around_the_pool_to_all_replicas_of_the_model(tmp_path: Path) -> None:
    """The AI gateway asks an InferencePool for answers alone, and refuses the rest."""
    plan = under_later_operator(plan_file(ROOT / "tests" / "fixtures" / "sites" / "valid" / "slices.yaml"))
    recorder, _ = declare(plan.site, tmp_path, pinned=plan.versions)
    bodies = {name: args.inputs for name, args in recorder.resources.items()}
    leads = {name: bodies[f"{name}-route"]["spec"]["rules"][0]["backendRefs"] for name in plan.models}
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool"}
    assert leads == {
        **{name: [{**pool, "name": name}] for name in ("chat", "embed")},
        # Of the kind that a reference without one has: the API server refuses a group.
        "rerank": [{"name": bodies["rerank-form"]["metadata"]["name"]}],
    }
    form = bodies["rerank-form"]["spec"]
    assert form["schema"] == {"name": "Cohere", "version": "v2"}
    assert form["backendRef"]["name"] == bodies["rerank-backend"]["metadata"]["name"]
    (endpoint,) = bodies["rerank-backend"]["spec"]["endpoints"]
    servers, pods = bodies["rerank-servers"], bodies["rerank-server"]["spec"]["template"]
    host = f"{servers['metadata']['name']}.{servers['metadata']['namespace']}.svc"
    assert endpoint["fqdn"] == {"hostname": host, "port": pods["spec"]["containers"][0]["ports"][0]["containerPort"]}
    assert servers["spec"]["clusterIP"] == "None"
    assert servers["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
    assert not {"embed-form", "embed-backend", "embed-servers"} & bodies.keys()


@pytest.mark.row("004.11")
def test_the_gateway_waits_for_its_addresses_and_all_that_decides_about_a_caller(tmp_path: Path) -> None:
    """And leaves before them. Keys are checked, identities dropped and priorities known before its port is open."""
    site = plan_file(ROOT / "Pulumi.prod.yaml").site
    _, requests = requested(site, tmp_path, Recorder())
    waits = {urn.rpartition("::")[2] for urn in requests["gateway-class"].dependencies}
    assert {"load-balancer-addresses-pool", "load-balancer-addresses-announcement"} <= waits
    assert {"access-policy", "front-door-filters", "front-door-lists", "tiers-policy"} <= waits


def test_the_gateway_waits_for_sessions_that_announce_its_address(tmp_path: Path) -> None:
    """By BGP, with the manifest of Cilium that has it and no other."""
    _, requests = requested(bgp_site().site, tmp_path, Recorder())
    waits = {urn.rpartition("::")[2] for urn in requests["gateway-class"].dependencies}
    made = {f"load-balancer-addresses-{name}" for name in ("pool", "advertisement", "peer-left", "sessions-infra-1")}
    assert made <= waits
    assert not any(name.endswith("-announcement") for name in requests)


@pytest.mark.row("002.09")
def test_a_site_that_measures_nothing_is_as_before(lab_site: SiteConfig, tmp_path: Path) -> None:
    """No object, no value of a chart and no rule of a policy: all that measuring adds is gone with it."""
    for folder in ("measured", "bare"):
        (tmp_path / folder).mkdir()
    measured, _ = declare(lab_site, tmp_path / "measured")
    bare, _ = declare(lab_site.model_copy(update={"monitoring": MonitoringSpec()}), tmp_path / "bare")
    added = {name for name in measured.resources if name not in bare.resources}
    assert {name for name in added if not name.startswith(("inference-monitoring", "monitoring"))} == {
        "certificates-network-policy-controller"
    }
    touched = {name for name, args in bare.resources.items() if args.inputs != measured.resources[name].inputs} - {
        "cluster",
        "crds-things",
        "machines-nodes",
    }
    assert touched == {
        "gateway-controllers-ai-gateway",
        "gateway-controllers-network-policy-ai-gateway",
        "gateway-controllers-network-policy-envoy-gateway",
        "gateway-network-policy",
        "gateway-proxy",
        *(f"{model}{part}-network-policy" for model in lab_site.models for part in ("", "-picker")),
    }
    assert not [name for name, args in bare.resources.items() if "monitoring" in f"{name} {args.inputs}"]


@pytest.mark.row("002.09")
def test_prometheus_waits_for_its_volume_its_operator_and_all_that_it_reads(tmp_path: Path) -> None:
    _, requests = requested(plan_file(ROOT / "Pulumi.prod.yaml").site, tmp_path, Recorder())

    def needs(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in requests[name].dependencies}

    monitors = {name for name in requests if name.startswith("monitoring-monitor-")}
    assert {"monitoring-monitor-gpus", "monitoring-monitor-storage"} <= monitors
    waits = needs("monitoring-prometheus")
    assert {"monitoring-operator", "monitoring-rules", *monitors} <= waits
    assert {"monitoring-prometheus-role-longhorn-system", "monitoring-prometheus-role-gpu-operator"} <= waits
    assert {"storage-class-longhorn-scratch", "inference-monitoring-namespace"} <= needs("monitoring-operator-role")
    # Its claims are deleted with it, by storage that is uninstalled after it.
    assert {"storage-longhorn", "storage-class-longhorn-scratch"} <= needs("inference-monitoring-namespace")


@pytest.mark.row("004.11")
def test_the_session_seed_is_made_once_and_kept(tmp_path: Path) -> None:
    """The chart's own is in its documentation."""
    recorder, _ = declare(plan_file(ROOT / "Pulumi.prod.yaml").site, tmp_path)
    command = recorder.resources["gateway-controllers-mcp-seed"].inputs
    assert (command["logging"], command.get("triggers")) == ("none", None)
    assert "PULUMI_COMMAND_STDOUT" in command["update"], "a new wording keeps the seed"
    values = recorder.resources["gateway-controllers-ai-gateway"].inputs["values"]
    assert values[rpc._special_sig_key] == rpc._special_secret_sig, "in no preview"
    assert values["value"]["controller"]["mcp"]["sessionEncryption"]["seed"] == "sk-canary"


@pytest.mark.row("000.31")
@pytest.mark.parametrize(
    ("set_s", "models", "drains"), [(None, (60, 60), "60s"), (600, (60, 60), "600s"), (50, (60, 70), "70s")]
)
def test_the_gateway_drains_for_its_longest_stream(
    lab_site: SiteConfig, tmp_path: Path, set_s: int | None, models: tuple[int, int], drains: str
) -> None:
    """A changed listener, or an Envoy that stops, cuts nothing shorter."""
    sized = {
        name: spec.model_copy(update={"server": spec.server.model_copy(update={"longest_stream_s": longest})})
        for (name, spec), longest in zip(lab_site.models.items(), models, strict=True)
    }
    gateway = lab_site.gateway.model_copy(update={"longest_stream_s": set_s})
    recorder, _ = declare(lab_site.model_copy(update={"models": sized, "gateway": gateway}), tmp_path)
    (proxy,) = [args.inputs for args in recorder.resources.values() if args.typ.endswith(":EnvoyProxy")]
    assert proxy["spec"]["shutdown"]["drainTimeout"] == drains


def test_bundle_must_be_the_pinned_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(CrdBundleError) as caught:
        read_bundle(tmp_path, {"a.json": "0" * 64, "b.json": "1" * 64}, {}, "python -m sitectl bundle berlin")
    message = str(caught.value)
    assert "a.json: sha256 is" in message
    assert "b.json: missing" in message
    assert message.endswith("fix: python -m sitectl bundle berlin")


def test_definitions_of_others_are_left_alone(lab_site: SiteConfig, tmp_path: Path) -> None:
    crds = lab_site.crds.model_copy(update={"owner": "external"})
    recorder, _ = declare(lab_site.model_copy(update={"crds": crds}), tmp_path)
    assert not [name for name in recorder.resources if name.startswith("crds-")]


def test_provider_takes_over_what_a_killed_run_made(lab_site: SiteConfig, tmp_path: Path) -> None:
    recorder, _ = declare(lab_site, tmp_path)
    provider = recorder.resources["cluster"].inputs
    for option in ("upsertExistingObjects", "enablePatchForce", "enableConfigMapMutable", "enableSecretMutable"):
        assert json.loads(provider[option]) is True, option
