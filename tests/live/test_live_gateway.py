"""The way in: reachable, closed without a key, and each key opens what its tenant may call."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import testinfra
import yaml
from cryptography import x509

from components.gateway.traffic_policies import GATEWAY
from floor.headers import CLIENT_HEADER, MODEL_HEADER
from services.directory.audit import chained
from sitectl.live import key_directory
from sitectl.live.site_cluster import SiteCluster
from stacks.plan.models import MODELS_NAMESPACE
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.live.conftest import Seen
from tests.live.running import ROOT, Object, RunningSite

_CERTIFICATE_DAYS = 14
_MODELS = "models"


def _conditions(status: Object) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions", [])}


def _chat(model: str, **more: object) -> Object:
    return {"model": model, "messages": [{"role": "user", "content": "One word."}], "max_tokens": 1, **more}


@pytest.mark.row("000.30")
def test_the_gateway_is_programmed(site: RunningSite, seen: Seen) -> None:
    path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{GATEWAY_NAMESPACE}/gateways/{GATEWAY}"
    status = site.read(path)["status"]
    seen(f"{_conditions(status)}, addresses {[address['value'] for address in status.get('addresses', [])]}")
    assert _conditions(status).get("Programmed") == "True", f"the Gateway is not Programmed: {_conditions(status)}"


@pytest.mark.row("000.36")
def test_every_model_has_an_accepted_route(site: RunningSite, seen: Seen) -> None:
    path = f"/apis/aigateway.envoyproxy.io/v1beta1/namespaces/{MODELS_NAMESPACE}/aigatewayroutes"
    routes = {route["metadata"]["name"]: _conditions(route.get("status", {})) for route in site.items(path)}
    seen(f"routes {sorted(routes)}")
    missing = [
        f"{name}: {routes.get(name, 'no route')}"
        for name in site.plan.models
        if routes.get(name, {}).get("Accepted") != "True"
    ]
    assert not missing, f"not accepted: {'; '.join(missing)}"


@pytest.mark.row("000.38")
def test_the_endpoint_is_reachable_from_here(site: RunningSite, seen: Seen) -> None:
    address = urlsplit(site.endpoint)
    port = address.port or (443 if address.scheme == "https" else 80)
    here: Any = testinfra.get_host("local://")
    there = here.addr(str(address.hostname))
    seen(f"{address.hostname}:{port}, resolves to {there.ipv4_addresses or there.ipv6_addresses}")
    assert there.is_resolvable, f"{address.hostname} has no address here"
    assert there.port(port).is_reachable, f"nothing answers at {address.hostname}:{port}"


@pytest.mark.row("000.03")
def test_the_endpoint_s_certificate_is_valid_for_two_weeks(site: RunningSite, seen: Seen) -> None:
    address = urlsplit(site.endpoint)
    if address.scheme != "https":
        pytest.skip("the endpoint is http: prompts are in the clear up to the gateway")
    trust = ssl.create_default_context(cafile=str(site.certificate) if site.certificate else None)
    host = str(address.hostname)
    with (
        socket.create_connection((host, address.port or 443), timeout=10) as raw,
        trust.wrap_socket(raw, server_hostname=host) as secured,
    ):
        certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    ends = certificate.not_valid_after_utc
    seen(f"valid until {ends:%Y-%m-%d}")
    assert ends - datetime.now(UTC) > timedelta(days=_CERTIFICATE_DAYS), f"the certificate ends on {ends:%Y-%m-%d}"


@pytest.mark.row("004.11")
@pytest.mark.parametrize("bearer", [None, "a-key-of-nobody"], ids=["none", "unknown"])
def test_a_request_without_a_valid_key_is_refused(site: RunningSite, seen: Seen, bearer: str | None) -> None:
    opened = []
    with site.http(bearer) as client:
        for model in site.plan.models:
            asked = client.post("chat/completions", json=_chat(model))
            listed = client.get(_MODELS)
            seen(f"{model}: {asked.status_code}, list {listed.status_code}")
            opened += [model] * (asked.status_code != httpx.codes.UNAUTHORIZED)
            opened += ["the list of models"] * (listed.status_code != httpx.codes.UNAUTHORIZED)
    assert not opened, f"open without a key: {', '.join(opened)}"


@pytest.mark.row("004.11", "000.34")
def test_who_a_client_claims_to_be_opens_nothing(site: RunningSite, seen: Seen) -> None:
    claimed = {CLIENT_HEADER: min(site.keys), MODEL_HEADER: min(site.plan.models)}
    with site.http(None) as client:
        status = client.post("chat/completions", json=_chat(min(site.plan.models)), headers=claimed).status_code
    seen(f"{status} for {', '.join(claimed)}")
    assert status == httpx.codes.UNAUTHORIZED, f"a claimed identity was answered with {status}"


@pytest.mark.row("000.38", "000.36")
def test_each_key_lists_the_models_of_its_tenant(site: RunningSite, seen: Seen) -> None:
    wrong = []
    for client_id, key in site.keys.items():
        models = site.plan.site.tenants[client_id.partition(".")[0]].models
        wanted = {name for model in models for name in site.plan.models[model].served_names}
        with site.http(key) as client:
            answer = client.get(_MODELS)
        listed = {model["id"] for model in answer.json()["data"]} if answer.status_code == httpx.codes.OK else set()
        seen(f"{client_id}: {sorted(listed) or answer.status_code}")
        if listed != wanted:
            wrong.append(f"{client_id} lists {sorted(listed) or answer.status_code}, its tenant has {sorted(wanted)}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("004.11")
def test_no_key_calls_a_model_that_its_tenant_does_not_have(site: RunningSite, seen: Seen) -> None:
    tried, opened = 0, []
    for client_id, key in site.keys.items():
        own = site.plan.site.tenants[client_id.partition(".")[0]].models
        with site.http(key) as client:
            for model in sorted(set(site.plan.models) - set(own)):
                status = client.post("chat/completions", json=_chat(model)).status_code
                tried += 1
                seen(f"{client_id} on {model}: {status}")
                opened += [f"{client_id} on {model}: {status}"] * (status != httpx.codes.FORBIDDEN)
    if not tried:
        pytest.skip("every tenant may call every model")
    assert not opened, f"not refused with 403: {'; '.join(opened)}"


@pytest.mark.row("000.05")
def test_the_audit_of_keys_is_whole(site: RunningSite, seen: Seen) -> None:
    """The head is for a later audit: `sitectl audit --check` finds rows that were removed or changed since."""
    if not site.plan.site.has_directory:
        # Without a directory nothing is kept that a chain could be of.
        pytest.skip("the site's file names no database for a directory of keys")
    cluster = SiteCluster(project=ROOT, site=site.name, kubeconfig=yaml.safe_dump(site.kubeconfig))
    with key_directory.of_cluster(cluster) as directory:
        head, wrong = chained(directory.acts())
    seen(f"head {head}")
    assert not wrong, f"the audit is not whole: {wrong}"


@pytest.mark.row("001.07")
def test_a_body_past_the_limit_is_refused(site: RunningSite, seen: Seen) -> None:
    model = min(site.plan.models)
    body = _chat(model, user="x" * (site.plan.body_kib + 64) * 1024)
    with site.http(site.key_for(model)) as client:
        status = client.post("chat/completions", json=body).status_code
    seen(f"{status} for {site.plan.body_kib + 64} KiB, the limit is {site.plan.body_kib} KiB")
    assert status == httpx.codes.REQUEST_ENTITY_TOO_LARGE, f"answered with {status}"
