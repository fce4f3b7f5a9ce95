"""What keeps tenants and Pods apart, and what the site would change of itself."""

from __future__ import annotations

import os
import subprocess

import pytest

from components.addons.registry import chart_namespaces
from components.network_policies import deny_ingress
from floor import namespaces
from stacks.facts import versions
from stacks.plan.charts import installed_charts
from stacks.plan.database import own_databases
from stacks.plan.models import MODELS_NAMESPACE
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.live.conftest import Seen
from tests.live.running import ROOT, RunningSite

# Namespaces of the platform and what their pod security admits; others' programs need what it otherwise refuses.
_OWN = {
    GATEWAY_NAMESPACE: "restricted",
    MODELS_NAMESPACE: "baseline",
    namespaces.MONITORING: "restricted",
    namespaces.CERTIFICATES: "restricted",
    namespaces.SECRETS: "restricted",
    namespaces.AUTOSCALING: "restricted",
    namespaces.DNS: "restricted",
    namespaces.GROUPS: "restricted",
    namespaces.DATABASE_OPERATOR: "restricted",
    namespaces.DATABASE: "restricted",
    **dict.fromkeys(sorted(namespaces.PRIVILEGED), "privileged"),
}


def _need(site: RunningSite, namespace: str) -> None:
    declared = site.plan.site
    there = {chart_namespaces()[chart] for chart in installed_charts(declared)} | {GATEWAY_NAMESPACE, MODELS_NAMESPACE}
    if declared.monitoring.system == "prometheus_operator":
        there.add(namespaces.MONITORING)
    if own_databases(declared):
        there.add(namespaces.DATABASE)
    if namespace not in there:
        pytest.skip(f"the site's file does not let the program make {namespace}")


@pytest.mark.row("004.11")
@pytest.mark.parametrize("namespace", _OWN)
def test_pods_refuse_what_no_policy_lets_in(site: RunningSite, seen: Seen, namespace: str) -> None:
    _need(site, namespace)
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in site.items(path)}
    seen(f"{len(policies)} policies: {', '.join(sorted(policies))}")
    wanted = deny_ingress(namespace)
    assert policies.get(wanted["metadata"]["name"]) == wanted["spec"], f"{namespace} does not deny by default"
    open_to_all = [
        name
        for name, spec in policies.items()
        if namespace == MODELS_NAMESPACE and any("from" not in rule for rule in spec.get("ingress") or [])
    ]
    assert not open_to_all, f"every Pod of the cluster reaches what {', '.join(open_to_all)} selects"


@pytest.mark.row("000.05")
@pytest.mark.parametrize("namespace", _OWN)
def test_a_namespace_admits_no_pod_with_more_rights(site: RunningSite, seen: Seen, namespace: str) -> None:
    _need(site, namespace)
    labels = site.read(f"/api/v1/namespaces/{namespace}")["metadata"].get("labels", {})
    level = labels.get("pod-security.kubernetes.io/enforce", "none")
    seen(f"{namespace}: {level}")
    # Pods of replicas over several nodes hold memory that cards read by themselves.
    groups = namespace == MODELS_NAMESPACE and site.plan.site.spans_nodes
    wanted = "privileged" if groups else _OWN[namespace]
    assert level == wanted, f"{namespace} enforces {level}, not {wanted}"


@pytest.mark.row("000.07", "opening 15")
def test_the_platform_s_pods_run_pinned_images(site: RunningSite, seen: Seen) -> None:
    pins = site.plan.versions.images
    bringing = {revision.weights.image for revision in site.plan.revisions if revision.weights}
    wanted = {pins.endpoint_picker, pins.vllm, pins.simulator, *bringing}
    wrong = []
    for pod in site.items(f"/api/v1/namespaces/{MODELS_NAMESPACE}/pods"):
        for container in pod["spec"]["containers"]:
            seen(f"{pod['metadata']['name']}: {container['image']}")
            if container["image"] not in wanted or not versions.parts(container["image"])[1]:
                wrong.append(f"{pod['metadata']['name']} runs {container['image']}")
    assert not wrong, f"not pinned by the platform: {'; '.join(wrong)}"


@pytest.mark.row("C.04", "C.05", "opening 13")
def test_a_preview_has_nothing_to_change(site: RunningSite, seen: Seen) -> None:
    """Of the site and, with --refresh, of what others changed on the cluster."""
    done = subprocess.run(
        ["pulumi", "preview", "--refresh", "--expect-no-changes", "--stack", site.name, "--non-interactive"],
        cwd=ROOT,
        env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    changes = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith(("+", "-", "~"))]
    seen(f"{len(changes)} changes")
    assert done.returncode == 0, f"preview would change: {'; '.join(changes[:20]) or done.stderr.strip()[-500:]}"
