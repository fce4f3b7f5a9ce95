"""What runs on a site, read from its cluster, and the steps from there.

`running_site/lab.json` was recorded on a lab: nodes, Pods, definitions and Helm's Secrets, cut down to what is read of
them. Tests change it to what a site a release behind has.
"""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from components.specs.certificates import CertificatesSpec
from components.specs.limits import LimitsSpec
from floor.namespaces import HOSTS
from sitectl.live.helm_releases import UnreadableReleaseError, releases
from sitectl.live.running_versions import PICKER, ClusterObjects, RunningVersions, images, running
from sitectl.offline import checkout
from sitectl.shell.errors import Exit
from stacks.facts import versions
from stacks.plan import conflicts
from stacks.plan.site_plan import plan_file, plan_values
from stacks.plan.upgrades import pinned, steps_from
from stacks.site.model import SiteConfig
from tests.unit.helm_secrets import SECRET_VALUE, helm_secret
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 7")

ROOT = Path(__file__).parents[3]
PINS = versions.load()
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(
    (ROOT / "tests" / "fixtures" / "running_site" / "lab.json").read_text()
)
# The lab that was recorded had no cert-manager.
LAB = plan_file(ROOT / "Pulumi.lab.yaml").site.model_copy(update={"certificates": CertificatesSpec()})
PROD = plan_values(prod(), "site.yaml").site
# Without what no cluster states: drivers are a part of Talos's image.
NOT_STATED = {fact for fact in conflicts.deciding_keys() if fact.startswith("nvidia_")}


def recorded() -> dict[str, list[dict[str, Any]]]:
    return copy.deepcopy(RECORDED)


def pod(namespace: str, container: str, image: str, name: str = "one") -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"containers": [{"name": container, "image": image}]},
        "status": {"phase": "Running"},
    }


def read(objects: dict[str, list[dict[str, Any]]], site: SiteConfig = LAB, server: str = "v1.36.3") -> RunningVersions:
    seen = ClusterObjects(
        server=server,
        nodes=objects["nodes"],
        pods=objects["pods"],
        definitions=objects["customresourcedefinitions"],
        releases=releases(objects["secrets"]),
    )
    return running(seen, site, PINS)


def path(seen: RunningVersions, site: SiteConfig = LAB) -> list[str]:
    steps, problems = steps_from(site, seen.facts(conflicts.facts(PINS, site)), PINS)
    assert problems == []
    return [" + ".join(part.part for part in step.parts) for step in steps]


def test_the_cluster_states_every_version_but_those_of_drivers() -> None:
    seen = read(recorded())
    wanted = conflicts.facts(PINS, LAB)
    assert set(pinned(wanted)) - seen.places.keys() == NOT_STATED
    assert {fact: list(places) for fact, places in seen.places.items()} == {
        fact: [wanted[fact]] for fact in seen.places
    }
    assert [release.label for release in seen.releases] == ["envoy-gateway-system/eg", "envoy-ai-gateway-system/aieg"]
    assert path(seen) == []


def test_a_site_behind_has_the_steps_from_what_it_runs() -> None:
    objects = recorded()
    for node in objects["nodes"]:
        node["status"]["nodeInfo"] = {"kubeletVersion": "v1.35.2", "osImage": "Talos (v1.13.7)"}
    for entry in objects["pods"]:
        for container in entry["spec"]["containers"]:
            container["image"] = container["image"].replace("/epp:v1.5.0", "/epp:v1.4.0")
    objects["secrets"] = [
        helm_secret("eg", "envoy-gateway-system", "gateway-helm", "v1.8.2", 1, "superseded"),
        helm_secret("eg", "envoy-gateway-system", "gateway-helm", "v1.8.3", 2, "deployed"),
        helm_secret("aieg", "envoy-ai-gateway-system", "ai-gateway-helm", "v1.0.0", 1, "deployed"),
    ]
    seen = read(objects, server="v1.35.2")
    assert seen.places["envoy_gateway"] == {"1.8.3": ["Helm release envoy-gateway-system/eg"]}
    assert path(seen) == [
        "Talos",
        "Envoy Gateway with its CRDs and Gateway API",
        "Kubernetes API servers",
        "kubelets",
        "endpoint picker",
    ]


def test_parts_that_the_lab_does_not_run_are_known_by_their_releases_and_containers() -> None:
    wanted = conflicts.facts(PINS, PROD)
    stated = {fact: str(wanted[fact]) for fact in ("vllm", "cilium")}
    objects = recorded()
    charts = PINS.charts
    objects["pods"] += [
        pod("inference-models", "engine", PINS.images.vllm),
        pod("kube-system", "cilium-agent", f"quay.io/cilium/cilium:v{stated['cilium']}@sha256:{'0' * 64}"),
    ]
    objects["secrets"] += [
        helm_secret("longhorn", "longhorn-system", "longhorn", charts["longhorn"].version, 1, "deployed"),
        helm_secret("gpu-operator", "gpu-operator", "gpu-operator", charts["gpu_operator"].version, 1, "deployed"),
        helm_secret("cert-manager", "cert-manager", "cert-manager", charts["cert_manager"].version, 1, "deployed"),
        helm_secret(
            "node-exporter", HOSTS, charts["node_exporter"].chart, charts["node_exporter"].version, 1, "deployed"
        ),
    ]
    seen = read(objects, PROD)
    assert set(pinned(wanted)) - seen.places.keys() == NOT_STATED
    assert path(seen, PROD) == []
    objects["pods"][-2] = pod("inference-models", "engine", "docker.io/vllm/vllm-openai:v0.31.0")
    assert path(read(objects, PROD), PROD) == ["vLLM"]


def test_a_device_plugin_by_its_digest_alone_is_of_its_operators_version() -> None:
    """As the operator joins a locked image; by a tag it states its own."""
    offered = PROD.cluster.rdma_devices.model_copy(update={"system": "network_operator"})
    site = PROD.model_copy(update={"cluster": PROD.cluster.model_copy(update={"rdma_devices": offered})})
    objects, image = recorded(), PINS.images.rdma_device_plugin
    space, chart = "nvidia-network-operator", PINS.charts["network_operator"]
    objects["secrets"].append(helm_secret("network-operator", space, chart.chart, chart.version, 1, "deployed"))
    for running_image, stated in (
        (image, chart.version),
        (image.replace(chart.version, "26.1.2"), "26.1.2"),
        (f"{image.rpartition(':')[0]}@sha256:{'0' * 64}", chart.version),
    ):
        objects["pods"].append(pod(space, "rdma-shared-dp", running_image))
        assert list(read(objects, site).places["rdma_device_plugin"]) == [stated], running_image
        objects["pods"].pop()


def test_what_counts_for_limits_has_versions_where_a_tenant_has_a_limit() -> None:
    """The limit service's is a commit, as its project has no releases."""
    limit = LimitsSpec(tokens_per_day=9)
    tenants = {name: spec.model_copy(update={"limits": limit}) for name, spec in LAB.tenants.items()}
    site, objects, pins = LAB.model_copy(update={"tenants": tenants}), recorded(), PINS.images
    service, before = "docker.io/envoyproxy/ratelimit:0123abcd@sha256:" + "0" * 64, "docker.io/valkey/valkey:8.1.7"
    for running_service, store, steps in (
        (pins.limit_service, pins.limit_counters, []),
        (service, before, ["limit service", "counters of limits"]),
    ):
        objects["pods"] += [
            pod("envoy-gateway-system", "envoy-ratelimit", running_service),
            pod("inference-gateway", "limit-counters", store),
        ]
        assert path(read(objects, site), site) == steps
        assert path(read(objects)) == []
        del objects["pods"][-2:]


def test_of_several_versions_the_oldest_that_is_not_wanted_counts() -> None:
    """A roll that stopped half-way."""
    objects = recorded()
    objects["nodes"][2]["status"]["nodeInfo"]["kubeletVersion"] = "v1.36.1"
    seen = read(objects)
    assert seen.places["kubelet"]["1.36.1"] == ["hgx-2"]
    assert path(seen) == ["Kubernetes"]
    objects["nodes"][3]["status"]["nodeInfo"]["kubeletVersion"] = "v1.35.9"
    assert seen.facts({"kubelet": "1.36.1"})["kubelet"] == "1.36.3"
    assert read(objects).facts({"kubelet": "1.36.3"})["kubelet"] == "1.35.9"


def test_pods_that_ended_or_are_ending_run_nothing() -> None:
    objects = recorded()
    ended, ending = (pod("inference-models", "epp", "registry/epp:v1.0.0", name) for name in ("ended", "ending"))
    ended["status"]["phase"] = "Succeeded"
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects["pods"] += [ended, ending]
    assert list(read(objects).places["picker"]) == ["1.5.0"]


def test_what_is_not_installed_yet_has_no_step() -> None:
    objects = recorded()
    objects["secrets"], objects["pods"] = [], []
    seen = read(objects)
    assert not {"envoy_gateway", "envoy_gateway_crds", "picker", "prometheus"} & seen.places.keys()
    assert path(seen) == []


def test_an_image_that_is_named_by_its_digest_alone_states_no_version() -> None:
    objects = recorded()
    objects["pods"] = [pod("inference-models", "epp", f"registry.example/epp@sha256:{'0' * 64}")]
    assert "picker" not in read(objects).places


def test_releases_of_others_are_not_the_platforms() -> None:
    objects = recorded()
    objects["secrets"] += [
        helm_secret("own", "team-a", "gateway-helm", "v1.2.0", 1, "failed"),
        helm_secret("grafana", "envoy-gateway-system", "grafana", "9.0.0", 1, "pending-install"),
    ]
    seen = read(objects)
    assert list(seen.places["envoy_gateway"]) == ["1.9.1"]
    assert list(seen.problems()) == []


def test_a_cluster_that_exists_keeps_its_machines_and_is_judged_with_them() -> None:
    """Envoy Gateway 1.9 needs a Kubernetes that this cluster has or has not; its version is no step of ours."""
    existing = LAB.model_copy(update={"cluster": LAB.cluster.model_copy(update={"machines": None})})
    objects = recorded()
    for node in objects["nodes"]:
        node["status"]["nodeInfo"] = {"kubeletVersion": "v1.35.6-vendor.3", "osImage": "Debian GNU/Linux 13"}
    objects["pods"][0] = pod("kube-system", "kube-apiserver", "registry.k8s.io/kube-apiserver:v1.35.6")
    seen = read(objects, existing, server="v1.35.6-vendor.3")
    assert list(seen.places["kubernetes"]) == ["1.35.6"]
    assert "talos" not in seen.places
    assert path(seen, existing) == []


@pytest.mark.parametrize(
    ("before", "status", "fix"),
    [
        ([], "pending-install", "helm uninstall eg --namespace envoy-gateway-system"),
        ([("v1.8.3", "deployed")], "pending-upgrade", "helm rollback eg 1 --namespace envoy-gateway-system"),
        ([("v1.8.3", "deployed")], "failed", "helm history eg --namespace envoy-gateway-system"),
    ],
)
def test_a_release_that_helm_did_not_finish_is_a_problem(before: list[tuple[str, str]], status: str, fix: str) -> None:
    objects = recorded()
    revisions = [*before, ("v1.9.1", status)]
    objects["secrets"] = [
        helm_secret("eg", "envoy-gateway-system", "gateway-helm", version, number, was)
        for number, (version, was) in enumerate(revisions, start=1)
    ]
    (problem,) = read(objects).problems()
    assert problem.what == f"the Helm release of gateway-helm v1.9.1 is {status}"
    assert problem.path == ("envoy-gateway-system/eg",)
    assert fix in problem.fix
    assert ("v1.8.3 as revision 1" if before else "last deployed: none") in problem.got


def test_a_secret_that_holds_no_release_is_named_without_its_content() -> None:
    secret = helm_secret("eg", "envoy-gateway-system", "gateway-helm", "v1.9.1", 1, "deployed")
    secret["data"]["release"] = base64.b64encode(SECRET_VALUE.encode()).decode()
    with pytest.raises(UnreadableReleaseError) as caught:
        releases([secret])
    assert str(caught.value) == "envoy-gateway-system/sh.helm.release.v1.eg.v1"
    assert releases([{"type": "Opaque", "metadata": {"name": "x", "namespace": "y"}}]) == []


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `pulumi` has the kubeconfig and whose `kubectl` answers as the lab did."""
    programs = tmp_path / "bin"
    programs.mkdir()
    put(tmp_path, recorded())
    texts = {
        "pulumi": "echo '\"kubeconfig\"'",
        "kubectl": f'test "$(cat "${{1#--kubeconfig=}}")" = kubeconfig || exit 1\n'
        f'case "$3" in --raw) echo \'{{"gitVersion": "v1.36.3"}}\';; *) cat {tmp_path}/"$3".json;; esac',
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return make_checkout(tmp_path / "project", sites=("lab",))


def put(folder: Path, objects: dict[str, list[dict[str, Any]]]) -> None:
    for kind, items in objects.items():
        (folder / f"{kind}.json").write_text(json.dumps({"items": items}))


def asked(project: Path, *words: str) -> CommandResult:
    return run(project, "upgrade-path", "lab", "--live", "--quiet", *words)


def test_the_command_shows_what_runs_and_no_step(live: Path) -> None:
    shown = asked(live)
    assert shown.status == Exit.OK, shown.err
    assert shown.out.startswith("lab: no step: the versions of its cluster are those that are pinned now")
    assert "   charts.envoy_gateway.version: 1.9.1\n" in shown.out
    assert "   crd_versions.ai-gateway.json: 1.0.0, taken from charts.ai_gateway.version\n" in shown.out
    assert "   Helm release envoy-gateway-system/eg: gateway-helm v1.9.1, deployed\n" in shown.out
    assert "   nvidia.lts.driver: nothing in the cluster states it, so no step looks at it" in shown.out
    record = asked(live, "--json").data
    assert (record["steps"], record["runs"]["picker"]) == (
        [],
        {
            "1.5.0": [
                f"inference-models/{entry['metadata']['name']}"
                for entry in RECORDED["pods"]
                if "-epp-" in entry["metadata"]["name"]
            ]
        },
    )
    assert record["releases"][0] == {
        "release": "envoy-gateway-system/eg",
        "revision": 1,
        "status": "deployed",
        "chart": "gateway-helm",
        "version": "v1.9.1",
        "app_version": "v1.9.1",
    }


def test_the_command_shows_the_steps_and_each_version_with_its_place(live: Path) -> None:
    objects = recorded()
    objects["nodes"][1]["status"]["nodeInfo"]["osImage"] = "Talos (v1.13.7)"
    put(live.parent, objects)
    shown = asked(live)
    assert shown.status == Exit.OK, shown.err
    assert "lab: 1 step from its cluster to the versions that are pinned now" in shown.out
    assert f"talos: 1.13.7 -> {PINS.talos.removeprefix('v')}" in shown.out
    assert "   talos: 1.13.9 (cp-1, hgx-2, hgx-3, hgx-4), 1.13.7 (hgx-1)\n" in shown.out


def test_the_command_refuses_unfinished_releases_and_steps_that_leave_out_a_minor_at_once(live: Path) -> None:
    objects = recorded()
    for node in objects["nodes"]:
        node["status"]["nodeInfo"]["osImage"] = "Talos (v1.11.4)"
    objects["secrets"] = [helm_secret("eg", "envoy-gateway-system", "gateway-helm", "v1.9.1", 3, "pending-upgrade")]
    put(live.parent, objects)
    refused = asked(live)
    assert refused.status == Exit.REFUSED
    assert "lab: 2 errors in the site" in refused.err
    assert "the Helm release of gateway-helm v1.9.1 is pending-upgrade; got revision 3" in refused.err
    assert "stacks/facts/versions.yaml:talos: Talos: the step leaves out a minor version" in refused.err
    assert SECRET_VALUE not in refused.err + refused.out


def test_a_cluster_that_does_not_answer_is_one_error(live: Path) -> None:
    (live.parent / "bin" / "kubectl").write_text("#!/bin/sh\necho 'dial tcp 10.0.0.1:6443: i/o timeout' >&2; exit 1\n")
    shown = asked(live)
    assert shown.status == Exit.UNABLE
    assert shown.err.count("error:") == 1
    assert "the cluster of lab does not answer: dial tcp 10.0.0.1:6443: i/o timeout" in shown.err
    assert "fix: check that its API server can be reached from here" in shown.err


def test_a_secret_that_is_no_release_is_an_error_of_the_command(live: Path) -> None:
    objects = recorded()
    objects["secrets"][0]["data"]["release"] = "bm9uZQ=="
    put(live.parent, objects)
    shown = asked(live)
    assert shown.status == Exit.UNABLE
    assert "holds no release of Helm that can be read" in shown.err


def test_git_and_the_cluster_are_not_both_asked(live: Path) -> None:
    assert asked(live, "--from", "HEAD").status == Exit.USAGE


@pytest.mark.slow
def test_the_containers_are_those_that_the_program_declares(tmp_path: Path) -> None:
    """A renamed container would not be found any more; those of Prometheus are named by their operators."""
    limited = tmp_path / "Pulumi.lab.yaml"
    text = (ROOT / limited.name).read_text()
    callers = "    callers: {decided_by: gatekeeper, database_secret: directory-database}\n"
    callers += "    usage: {database_secret: usage-database}\n"
    callers += "    portal: {hostname: p.example, port: 80, issuer: 'https://login.example', client_secret: login}\n"
    text = text.replace("      acme:\n", "      acme:\n        limits: {tokens_per_day: 9}\n")
    drained = "    monitoring:\n      gpu_faults: {on_fault: drain}\n"
    text = text.replace("    monitoring:\n", drained).replace(
        "    cluster:\n", "    cluster:\n      gpu_stack: operator\n"
    )
    limited.write_text(text.replace("    tenants:\n", f"{callers}    tenants:\n"))
    declared = checkout.declare(ROOT, {"lab": limited})["lab"]
    assert not declared.error
    names = {
        (str(resource.body["metadata"]["namespace"]), str(container["name"]))
        for resource in declared.resources
        if resource.body.get("kind") in ("Deployment", "StatefulSet")
        for container in resource.body["spec"]["template"]["spec"]["containers"]
    }
    ours = {*images().values(), ("inference-models", PICKER)}
    of_operator = {("inference-monitoring", name) for name in ("prometheus", "alertmanager", "config-reloader")}
    of_operator |= {("nvidia-network-operator", "rdma-shared-dp"), ("inference-database", "postgres")}
    of_operator |= {("envoy-gateway-system", name) for name in ("envoy", "envoy-ratelimit")}
    assert ours - of_operator <= names
