"""The front door fails closed: no client gets in without a SecurityPolicy, and none is deleted by mistake."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from components.gateway.gateway_protection import OVERRIDE
from floor.headers import MODEL_HEADER
from lab import session
from lab.paths import Lab
from tests.lab.site.cluster_objects import FIELD_MANAGER, kubectl
from tests.lab.site.replicas import ENGINE_PORT, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of

pytestmark = pytest.mark.row("004.11")
FRONT, MODELS = "inference-gateway", "inference-models"
GATEWAY_API = "gateway.networking.k8s.io"
# A model that the second tenant may not call.
CLOSED = "glm-5-1"
PATH = "/v1/completions"
POLICY = "securitypolicy/tenants"
PROTECTED = (
    POLICY,
    "envoypatchpolicy/front-door",
    "envoypatchpolicy/listed-models",
    "envoypatchpolicy/openai-errors",
    "clienttrafficpolicy/inference",
)
# A deleted policy opened the gateway within 2 s.
WATCHED_S = 6


def refused(lab: Lab, *arguments: str) -> str:
    """What kubectl says of a change that the API server refuses."""
    done = subprocess.run(
        ["kubectl", *arguments], env=session.environment(lab), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, done.stdout
    return done.stderr


def statuses(site: Site) -> set[int]:
    """The answers without a key, to a forged client and to a valid key: from a model, and for the list of models."""
    bearers: list[dict[str, str]] = [
        {},
        {"x-gateway-inference-fairness-id": site.front.client},
        {"Authorization": f"Bearer {site.key}"},
    ]
    codes = set()
    with httpx.Client(base_url=site.front.endpoint, trust_env=False, timeout=60) as client:
        for headers in bearers:
            codes.add(client.post("/chat/completions", json=chat("qwen3-32b"), headers=headers).status_code)
            codes.add(client.get("/models", headers=headers).status_code)
    return codes


def serves(site: Site) -> bool:
    with site.http() as client:
        return client.post("/chat/completions", json=chat("qwen3-32b")).status_code == 200


@contextmanager
def overridden_policy(site: Site, folder: Path) -> Iterator[dict[str, Any]]:
    """The SecurityPolicy as the platform applied it, free to be changed; afterwards it is again as it was."""
    policy = json.loads(kubectl(site.lab, "get", POLICY, "-n", FRONT, "-o", "json"))
    meta = policy["metadata"]
    manager = meta["annotations"][FIELD_MANAGER]
    kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations")}
    document = {**{name: policy[name] for name in ("apiVersion", "kind", "spec")}, "metadata": kept}
    saved = folder / "policy.json"
    saved.write_text(json.dumps(document))
    kubectl(site.lab, "annotate", POLICY, "-n", FRONT, f"{OVERRIDE}=a drill")
    try:
        yield document
    finally:
        kubectl(site.lab, "apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", str(saved))
        kubectl(site.lab, "annotate", POLICY, "-n", FRONT, f"{OVERRIDE}-")
        until(lambda: serves(site), what="an answer with the policy back")


def never_open(site: Site) -> None:
    """Soon closed for every client, and never open without a key until then."""
    with httpx.Client(base_url=site.front.endpoint, trust_env=False, timeout=60) as nobody:
        deadline = time.monotonic() + WATCHED_S
        while time.monotonic() < deadline:
            answer = nobody.post("/chat/completions", json=chat("qwen3-32b"))
            assert answer.status_code == 401, answer.text
            assert nobody.get("/models").status_code == 401
    until(lambda: statuses(site) == {401}, what="401 for every client")


def test_no_key_is_added_to_a_secret(site: Site) -> None:
    """Envoy Gateway would accept it within seconds, and no `up` takes away what others add to a Secret."""
    policy = json.loads(kubectl(site.lab, "get", POLICY, "-n", FRONT, "-o", "json"))
    for secret in (ref["name"] for ref in policy["spec"]["apiKeyAuth"]["credentialRefs"]):
        for patch in ({"stringData": {"acme.added": "sk-added-by-hand"}}, {"immutable": False}):
            change = ("--type=merge", "--dry-run=server", "-p", json.dumps(patch))
            assert "immutable" in refused(site.lab, "patch", f"secret/{secret}", "-n", FRONT, *change)


def test_a_deleted_policy_closes_the_gateway(site: Site, tmp_path: Path) -> None:
    """By someone who states a reason."""
    with overridden_policy(site, tmp_path):
        kubectl(site.lab, "delete", POLICY, "-n", FRONT)
        never_open(site)


def test_a_rejected_policy_closes_the_gateway(site: Site, tmp_path: Path) -> None:
    """Envoy Gateway does not accept a policy whose Secret is missing."""
    with overridden_policy(site, tmp_path):
        missing = [{"group": "", "kind": "Secret", "name": "not-there"}]
        patch = {"spec": {"apiKeyAuth": {"credentialRefs": missing}}}
        kubectl(site.lab, "patch", POLICY, "-n", FRONT, "--type=merge", "-p", json.dumps(patch))
        never_open(site)


@pytest.mark.parametrize("name", PROTECTED)
def test_front_door_policies_are_not_deleted_by_hand(site: Site, name: str) -> None:
    """The refusal says what to do instead, and how to override it."""
    refusal = refused(site.lab, "delete", name, "-n", FRONT)
    assert "pulumi up" in refusal
    assert f"{OVERRIDE}=REASON" in refusal


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"authorization": {"defaultAction": "Allow"}}},
        {"metadata": {"labels": {"inference-platform/front-door": None}}},
    ],
    ids=["allow by default", "no label"],
)
def test_front_door_policies_are_not_weakened_by_hand(site: Site, patch: dict[str, Any]) -> None:
    """Neither in what they say nor in being protected."""
    refusal = refused(site.lab, "patch", POLICY, "-n", FRONT, "--type=merge", "-p", json.dumps(patch))
    assert "pulumi up" in refusal


@pytest.mark.parametrize(
    ("namespace", "target"),
    [(MODELS, {"kind": "HTTPRoute", "name": "qwen3-32b"}), (FRONT, {"kind": "Gateway", "name": "inference"})],
    ids=["on a route", "beside the platform's"],
)
def test_no_second_policy_is_put_beside_ours(
    site: Site, tmp_path: Path, namespace: str, target: dict[str, str]
) -> None:
    """A route's own would take the place of the gateway's."""
    second = tmp_path / "second.json"
    body = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": "second", "namespace": namespace},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", **target}], "cors": {"allowOrigins": ["*"]}},
    }
    second.write_text(json.dumps(body))
    assert "belongs to the front door" in refused(site.lab, "create", "-f", str(second))


PARENT = {"group": GATEWAY_API, "kind": "Gateway", "name": "inference", "namespace": FRONT}
BY_HAND: dict[str, dict[str, Any]] = {
    "HTTPRoute": {
        "apiVersion": f"{GATEWAY_API}/v1",
        "metadata": {"name": "by-hand", "namespace": MODELS},
        "spec": {"parentRefs": [PARENT]},
    },
    "GRPCRoute": {
        "apiVersion": f"{GATEWAY_API}/v1",
        "metadata": {"name": "by-hand", "namespace": MODELS},
        "spec": {"parentRefs": [PARENT]},
    },
    "AIGatewayRoute": {
        "apiVersion": "aigateway.envoyproxy.io/v1beta1",
        "metadata": {"name": "by-hand", "namespace": MODELS},
        "spec": {"parentRefs": [PARENT], "rules": []},
    },
    "ReferenceGrant": {
        "apiVersion": f"{GATEWAY_API}/v1beta1",
        "metadata": {"name": "by-hand", "namespace": MODELS},
        "spec": {
            "from": [{"group": "gateway.envoyproxy.io", "kind": "SecurityPolicy", "namespace": "default"}],
            "to": [{"group": GATEWAY_API, "kind": "HTTPRoute"}],
        },
    },
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_nothing_is_hung_on_the_gateway_by_hand(site: Site, tmp_path: Path, kind: str) -> None:
    """A route of one's own leads around what tenants may call; a grant lets others put their policy on ours."""
    file = tmp_path / "by-hand.json"
    body = {"kind": kind, **BY_HAND[kind]}
    file.write_text(json.dumps(body))
    assert "belongs to the front door" in refused(site.lab, "create", "--dry-run=server", "-f", str(file))
    body["metadata"] = {**body["metadata"], "annotations": {OVERRIDE: "a drill"}}
    file.write_text(json.dumps(body))
    kubectl(site.lab, "create", "--dry-run=server", "-f", str(file))


OPEN_TO_ALL = {"op": "add", "path": "/spec/listeners/0/allowedRoutes/namespaces", "value": {"from": "All"}}
FOR_ANY_MODEL = {"op": "remove", "path": "/spec/rules/0/matches"}


@pytest.mark.parametrize(
    ("target", "patch"),
    [
        ((FRONT, "gateway/inference"), OPEN_TO_ALL),
        ((MODELS, "aigatewayroute/qwen3-32b"), FOR_ANY_MODEL),
        ((MODELS, "httproute/qwen3-32b"), FOR_ANY_MODEL),
    ],
    ids=["listener", "the program's route", "the AI gateway's route"],
)
def test_what_hangs_on_the_gateway_is_not_changed_by_hand(
    site: Site, target: tuple[str, str], patch: dict[str, Any]
) -> None:
    """A listener for all namespaces lets each of them bring its own keys."""
    space, name = target
    change = ("--type=json", "--dry-run=server", "-p", json.dumps([patch]))
    assert "belongs to the front door" in refused(site.lab, "patch", name, "-n", space, *change)


@contextmanager
def route_around_the_ai_gateway(site: Site, cluster: Cluster, folder: Path) -> Iterator[None]:
    """By path, and by a model's name that no file has, to an engine, made by somebody who overrides the refusal."""
    meta = {"name": "by-hand", "namespace": MODELS, "annotations": {OVERRIDE: "a drill"}}
    engine = {"address": cluster.ready_replicas(CLOSED)[0].ip, "port": ENGINE_PORT}
    backend = {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "by-hand"}
    rules = [
        {"matches": [{"path": {"type": "Exact", "value": PATH}}], "backendRefs": [backend]},
        {"matches": [{"headers": [{"name": MODEL_HEADER, "value": "by-hand"}]}], "backendRefs": [backend]},
    ]
    items = [
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "Backend",
            "metadata": meta,
            "spec": {"endpoints": [{"ip": engine}]},
        },
        {
            "apiVersion": f"{GATEWAY_API}/v1",
            "kind": "HTTPRoute",
            "metadata": meta,
            "spec": {"parentRefs": [PARENT], "rules": rules},
        },
    ]
    file = folder / "by-hand.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl(site.lab, "create", "-f", str(file))
    try:
        yield
    finally:
        kubectl(site.lab, "delete", "-f", str(file))


def test_a_route_by_hand_opens_no_model(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    """Who may call what holds on every route: also before a model is known, and for a name that no file has."""
    with site.http(key=site.front.keys["globex.laptop"]) as stranger:

        def asked(path: str, model: str) -> httpx.Response:
            return stranger.post(f"{site.address}{path}", json={**chat(model), "prompt": "hi"})

        def unknown() -> bool:
            return bool(error_of(asked("/v1/chat/completions", "by-hand"))["code"] == "model_not_found")

        assert unknown()
        with route_around_the_ai_gateway(site, cluster, tmp_path):
            until(lambda: not unknown(), what="the route in Envoy")
            by_name, by_path = asked("/v1/chat/completions", "by-hand"), asked(PATH, CLOSED)
            assert (by_name.status_code, error_of(by_name)["code"]) == (403, "model_not_allowed"), by_name.text
            assert by_path.status_code in {400, 403}, by_path.text
        until(unknown, what="a gateway without the route")
