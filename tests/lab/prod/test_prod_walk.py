"""The annotated production site from an empty cluster and back: preview, `up` in one run, `destroy` by permission.

Its machines are emulated, and so is what their GPUs and disks do. Charts come from a mirror folder: those of the
gateways and of cert-manager are real. The chart of external-secrets is a stub around its real controller, in an older
release. The operators of GPUs, RDMA devices, Longhorn and Cilium are simulated: pods of stub charts that write the
status that `up` waits for, and hold their objects by finalizers until they have let go (simulated_operator.py). What
the site's file says otherwise here, and why, is in prod_site.edit. The cluster is made first, by the program's own part
for machines, so that preview and `up` find it empty; how a rack becomes one within an `up` is in test_faults_up.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from floor import metadata
from lab.cluster import controlplane
from lab.machines import lab_rack
from lab.machines.admin import ask
from tests.lab.prod.prod_site import ProdSite, permit
from tests.lab.prod.removals import Removals, watched
from tests.lab.prod.stub_charts import STAYING
from tests.lab.site.cluster_objects import inventory, kubectl
from tests.lab.site.streams import chat
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("C.04", "C.05", "000.02", "opening 4")]

GOLDEN = Path(__file__).parents[2] / "unit" / "golden" / "urns-prod.txt"
# Optional parts that the checked-in site leaves out, and this one has.
ADDED = {"RdmaDevices", "ExternalSecrets", "SecretStore", "FilledSecrets"}
# What `prod_site.edit` takes out.
LEFT_OUT = {"EtcdBackup", "CloudNativePg", "PostgreSql", "Directory", "Ledger", "Portal"}
# Who serves the kinds of a group of the API, as `namespace/name` of a Deployment.
OPERATORS = {
    "mellanox.com": "nvidia-network-operator/network-operator",
    "external-secrets.io": "external-secrets/external-secrets",
    "cert-manager.io": "cert-manager/cert-manager",
    "gateway.networking.k8s.io": "envoy-gateway-system/envoy-gateway",
    "gateway.envoyproxy.io": "envoy-gateway-system/envoy-gateway",
    "aigateway.envoyproxy.io": "envoy-ai-gateway-system/ai-gateway-controller",
    "monitoring.coreos.com": "inference-monitoring/prometheus-operator",
}
# Its operator only reads the others of its group, and nothing of theirs is left where it goes first.
SERVED_BY_PROMETHEUS_OPERATOR = {"prometheuses", "alertmanagers"}
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(kw_only=True)
class Walk:
    """What was seen on the way; each test goes one step on."""

    prod: ProdSite
    empty: set[str]
    """Every object of the empty cluster."""


@pytest.fixture(scope="module")
def walk(prod: ProdSite) -> Walk:
    return Walk(prod=prod, empty=set(inventory(prod.lab)))


def components(steps: list[dict[str, Any]]) -> set[str]:
    """Classes of the program's components."""
    types = {step["newState"]["type"] for step in steps if "newState" in step}
    return {name.rpartition(":")[2] for name in types if name.startswith("inference-platform:")}


def test_a_preview_on_the_empty_cluster_lists_every_component(walk: Walk) -> None:
    previewed = json.loads(walk.prod.pulumi("preview", "--json", "--show-sames").stdout)
    types = {line.partition("::")[0].rpartition("$")[2] for line in GOLDEN.read_text().splitlines()}
    own = {name.rpartition(":")[2] for name in types if name.startswith("inference-platform:")}
    assert len(own) > 15
    assert components(previewed["steps"]) == own - LEFT_OUT | ADDED
    assert set(previewed["changeSummary"]) <= {"create", "same"}
    assert set(inventory(walk.prod.lab)) == walk.empty, "a preview creates nothing"


def test_one_up_makes_all_of_it(walk: Walk) -> None:
    """With its preview. Nodes offer GPUs and disks, secrets are filled, and a model answers at the site's name."""
    prod = walk.prod
    prod.pulumi("up", "--yes")
    outputs = json.loads(prod.pulumi("stack", "output", "--json", "--show-secrets").stdout)
    address = prod.site["gateway"]["address"]
    assert outputs["endpoint"].endswith("/v1")
    key = next(iter(outputs["keys"].values()))
    (name,) = prod.site["certificates"]["names"]
    with httpx.Client(verify=prod.authority.trusting, trust_env=False, timeout=60) as http:

        def answered() -> bool:
            try:
                answer = http.post(
                    f"https://{address}/v1/chat/completions",
                    json=chat("qwen3-32b"),
                    headers={"Authorization": f"Bearer {key}", "Host": name},
                    extensions={"sni_hostname": name},
                )
            except httpx.TransportError:
                return False
            return answer.is_success and bool(answer.json()["choices"])

        assert eventually(answered)


def test_a_second_up_and_a_refresh_find_nothing_to_do(walk: Walk) -> None:
    walk.prod.pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
    walk.prod.pulumi("preview", "--refresh", "--expect-no-changes")


def test_destroy_refuses_to_take_what_holds_data(walk: Walk) -> None:
    """Nothing is deleted, also nothing that is not protected."""
    prod = walk.prod
    state, objects = prod.urns(), _lasting(prod)
    refused = prod.pulumi("destroy", "--yes", check=False)
    printed = refused.stdout + refused.stderr
    assert refused.returncode != 0
    named = {word.strip("'`\"").rpartition("::")[2] for word in printed.split() if "urn:pulumi:" in word}
    # The engine stops at the first few that it comes to.
    protected = {"glm-5-1-weights", "qwen3-32b-weights", "storage-longhorn", "machines-identity-secrets"}
    assert named
    assert named <= protected
    assert "because it is protected" in printed
    assert prod.urns() == state
    assert _lasting(prod) == objects


def test_with_permission_destroy_takes_objects_before_their_operators(walk: Walk) -> None:
    """The permission is an `up` of its own, which deletes nothing. Machines stay at first: what is left can be seen."""
    prod = walk.prod
    state = prod.urns()
    prod.rewrite(permit)
    prod.pulumi("up", "--yes", "--skip-preview")
    assert prod.urns() == state
    machines = [urn for urn in state if "::machines" in urn]
    paths = _collections(prod)
    with watched(prod.lab, paths) as removals:
        keep = [option for urn in machines for option in ("--exclude", urn)]
        prod.pulumi("destroy", "--yes", "--skip-preview", *keep)
        with suppress(AssertionError):
            eventually(lambda: not _left(walk))
        assert _left(walk) == set()
    groups = {key.partition(" ")[0].partition(".")[2] for key in removals.at}
    assert groups >= set(OPERATORS), "each of them had objects"
    assert _too_late(removals) == {}
    claims, storage = removals.of("persistentvolumeclaims"), removals.of("daemonsets.apps")
    assert len(claims) >= 4
    assert max(claims.values()) < storage["longhorn-system/longhorn-manager"]


def test_a_last_destroy_erases_the_machines(walk: Walk) -> None:
    prod = walk.prod
    prod.pulumi("destroy", "--yes", "--skip-preview")
    assert prod.urns() == set()
    stages = Counter(machine["stage"] for machine in ask(lab_rack.folder(prod.lab), {"action": "show"}))
    assert stages == {"maintenance": len(prod.site["cluster"]["machines"]["nodes"])}
    assert not controlplane.is_created(prod.lab)


def _lasting(prod: ProdSite) -> set[str]:
    """Objects that no controller makes and removes by itself."""
    passing = ("Pod ", "EndpointSlice ", "Endpoints ", "Job ", "CertificateRequest ", "PodMetrics ")
    return {name for name in inventory(prod.lab) if not name.startswith(passing)}


def _left(walk: Walk) -> set[str]:
    """What was not there at first, but for definitions, which nothing removes, and the API server's groups of them."""
    lab = walk.prod.lab
    ours = json.loads(kubectl(lab, "get", DEFINITIONS, f"--selector={metadata.DEFINITIONS}", "--output=json"))["items"]
    assert len(ours) > 40
    staying = {f"CustomResourceDefinition -/{body['metadata']['name']}" for body in (*STAYING, *ours)}
    staying |= {
        f"APIService -/{version['name']}.{body['spec']['group']}"
        for body in (*STAYING, *ours)
        for version in body["spec"]["versions"]
        if version["served"]
    }
    left = set(inventory(lab)) - walk.empty
    assert staying <= left
    return left - staying


def _collections(prod: ProdSite) -> list[str]:
    """Paths of the kinds of custom resources that an operator of the site serves, and of what serves and stores."""
    paths = []
    for item in json.loads(kubectl(prod.lab, "get", DEFINITIONS, "--output=json"))["items"]:
        group, plural = item["spec"]["group"], item["spec"]["names"]["plural"]
        if group in OPERATORS and (group != "monitoring.coreos.com" or plural in SERVED_BY_PROMETHEUS_OPERATOR):
            version = next(version["name"] for version in item["spec"]["versions"] if version["storage"])
            paths.append(f"/apis/{group}/{version}/{plural}")
    return [*sorted(paths), "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets", "/api/v1/persistentvolumeclaims"]


def _too_late(removals: Removals) -> dict[str, str]:
    """Objects that were removed after the operator of their kind, and the operator."""
    deployments = removals.of("deployments.apps")
    late = {}
    for key, at in removals.at.items():
        resource = key.partition(" ")[0]
        operator = OPERATORS.get(resource.partition(".")[2])
        if operator is not None and at > deployments[operator]:
            late[key] = operator
    return late
