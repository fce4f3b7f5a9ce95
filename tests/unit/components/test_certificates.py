"""Cert-manager and what the program asks it for: values, order, and that no key passes through the program."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.addon import AddonSite
from components.addons.cert_manager import (
    CERT_MANAGER,
    cert_manager_values,
    network_policies,
    with_port,
)
from components.addons.charts import Chart
from components.addons.installed import InstalledAddon
from components.addons.webhooks import answering
from components.gateway.certificate import acme_issuer, certificate, private_issuer
from components.network_policies import peer
from components.specs.acme import AcmeSpec, Rfc2136Spec
from components.specs.certificates import CertificatesSpec
from lab.plugins.kubernetes.awaiting.expressions import parse
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")

CHART = Chart(chart="cert-manager", version="v1.0.0")
OWN_CA = CertificatesSpec(system="cert_manager", names=("llm.site.example", "10.1.0.1"), ca_secret="site-ca")
ACME = AcmeSpec(
    server="https://acme.site.example/directory",
    email="platform@site.example",
    ca="PEM",
    rfc2136=Rfc2136Spec(nameserver="10.5.0.2", tsig_key="own", tsig_secret="acme-tsig"),
    resolvers=("10.5.0.2", "10.5.0.3:5353"),
)
BY_ACME = CertificatesSpec(system="cert_manager", names=("llm.site.example",), acme=ACME)
OTHERS = CertificatesSpec(system="external", names=("llm.site.example",), cluster_issuer="acme")


def test_a_certificate_is_for_names_and_addresses_and_renews_its_key() -> None:
    body = certificate("space", "tls", OWN_CA)
    assert body["spec"]["dnsNames"] == ["llm.site.example"]
    assert body["spec"]["ipAddresses"] == ["10.1.0.1"]
    assert body["spec"]["privateKey"]["rotationPolicy"] == "Always"
    assert body["spec"]["secretName"] == "tls"
    assert "ipAddresses" not in certificate("space", "tls", OTHERS)["spec"]


def test_an_issuer_is_the_sites_own_or_one_that_is_named() -> None:
    own, others = (certificate("space", "tls", spec)["spec"]["issuerRef"] for spec in (OWN_CA, OTHERS))
    issuer = private_issuer("space", "site-ca")
    assert (own["kind"], own["name"]) == (issuer["kind"], issuer["metadata"]["name"])
    assert issuer["spec"] == {"ca": {"secretName": "site-ca"}}
    assert (others["kind"], others["name"]) == ("ClusterIssuer", "acme")


def test_an_acme_server_gets_a_record_that_the_sites_key_signs() -> None:
    issuer = acme_issuer("space", ACME)
    account = issuer["spec"]["acme"]
    assert (account["server"], account["email"]) == (ACME.server, ACME.email)
    assert base64.b64decode(account["caBundle"]) == b"PEM"
    assert account["privateKeySecretRef"] == {"name": "inference-acme"}, "the name that no other Secret may have"
    assert account["solvers"] == [
        {
            "dns01": {
                "rfc2136": {
                    "nameserver": "10.5.0.2",
                    "protocol": "TCP",
                    "tsigKeyName": "own",
                    "tsigAlgorithm": "HMACSHA256",
                    "tsigSecretSecretRef": {"name": "acme-tsig", "key": "secret"},
                }
            }
        }
    ]
    bare = acme_issuer("space", ACME.model_copy(update={"ca": None, "email": None}))["spec"]["acme"]
    assert not {"caBundle", "email", "skipTLSVerify"} & set(bare)


@pytest.mark.parametrize(
    ("server", "written"),
    [
        ("fd00::2", "[fd00::2]"),
        ("[fd00::2]:5353", "[fd00::2]:5353"),
        ("10.5.0.2", "10.5.0.2"),
        ("dns.site.example:5353", "dns.site.example:5353"),
    ],
)
def test_cert_manager_reads_ipv6_addresses_in_brackets(server: str, written: str) -> None:
    """It refuses others: `validation/util/nameserver.go` of cert-manager 1.21."""
    acme = ACME.model_copy(update={"rfc2136": ACME.rfc2136.model_copy(update={"nameserver": server})})
    (solver,) = acme_issuer("space", acme)["spec"]["acme"]["solvers"]
    assert solver["dns01"]["rfc2136"]["nameserver"] == written


def test_another_kind_of_issuer_has_another_name_so_that_the_certificate_is_issued_again() -> None:
    by_acme, own = (certificate("space", "tls", spec)["spec"]["issuerRef"] for spec in (BY_ACME, OWN_CA))
    assert by_acme["name"] == acme_issuer("space", ACME)["metadata"]["name"] != own["name"]
    assert by_acme["kind"] == "Issuer"


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("10.5.0.2", "10.5.0.2:53"),
        ("10.5.0.2:5353", "10.5.0.2:5353"),
        ("fd00::2", "[fd00::2]:53"),
        ("[fd00::2]", "[fd00::2]:53"),
        ("[fd00::2]:5353", "[fd00::2]:5353"),
    ],
)
def test_a_dns_server_is_asked_at_its_port(server: str, address: str) -> None:
    assert with_port(server) == address


def test_records_are_looked_for_where_the_site_says() -> None:
    asked = cert_manager_values(ACME.resolvers)
    assert asked["dns01RecursiveNameservers"] == "10.5.0.2:53,10.5.0.3:5353"
    assert asked["dns01RecursiveNameserversOnly"] is True
    assert "dns01RecursiveNameservers" not in cert_manager_values()
    section = {"system": "cert_manager", "names": ["llm.site.example"], "acme": ACME.model_dump(exclude={"ca"})}
    plan = plan_values(changed(prod(), {"certificates": section}), "site.yaml")
    charts = charts_of(plan)
    check_values(plan, charts)
    values = releases_of(plan, charts)["cert_manager"].values
    assert values["dns01RecursiveNameservers"] == "10.5.0.2:53,10.5.0.3:5353"


@pytest.mark.parametrize(
    "body",
    [certificate("space", "tls", OWN_CA), private_issuer("space", "site-ca"), acme_issuer("space", ACME)],
)
def test_both_are_waited_for(body: dict[str, Any]) -> None:
    (holds,) = parse(body["metadata"]["annotations"]["pulumi.com/waitFor"])
    refused = {"type": "Ready", "status": "False", "reason": "SecretNotFound", "message": 'secrets "site-ca" not found'}
    assert "not found" in holds({"status": {"conditions": [refused]}}).message
    assert holds({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).ready


def test_issuers_are_let_in_once_the_webhook_can_be_trusted() -> None:
    (holds,) = parse(
        answering("cert-manager-webhook", "cert-manager", "cert-manager-v1")["metadata"]["annotations"][
            "pulumi.com/waitFor"
        ]
    )
    assert not holds({"webhooks": [{"clientConfig": {"service": {}}}]}).ready
    assert holds({"webhooks": [{"clientConfig": {"caBundle": "LS0t"}}]}).ready


def test_pods_of_others_reach_the_webhook_and_no_metrics() -> None:
    (webhook,) = network_policies()
    assert webhook["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 10250}]}]
    _, measured = network_policies([peer({"app": "prometheus"}, "watch")])
    assert [rule["ports"][0]["port"] for rule in measured["spec"]["ingress"]] == [9402]
    assert all(rule["from"] for rule in measured["spec"]["ingress"])


def test_the_release_comes_after_the_definitions_and_before_its_mark() -> None:
    recorder = Recorder()

    async def run() -> None:
        InstalledAddon(CERT_MANAGER, AddonSite(section=CertificatesSpec(), charts={"cert_manager": CHART}))
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    release, mark = (recorder.requests[f"certificates-{name}"] for name in ("cert-manager", "answering"))
    assert any("certificates-cert-manager" in urn for urn in mark.dependencies)
    assert any("network-policy-webhook" in urn for urn in release.dependencies)


def test_every_value_is_one_that_the_chart_documents() -> None:
    plan = plan_values(prod(), "site.yaml")
    charts = charts_of(plan)
    check_values(plan, charts)
    values = releases_of(plan, charts)["cert_manager"].values
    assert values["crds"] == {"enabled": False}
    assert all(values[part]["resources"]["limits"] for part in ("webhook", "cainjector"))


def test_a_site_whose_cert_manager_is_its_own_gets_no_chart() -> None:
    others = {"certificates.system": "external"}
    assert "cert_manager" not in installed_charts(plan_values(changed(prod(), others), "site.yaml").site)
    assert "cert_manager" in installed_charts(plan_values(prod(), "site.yaml").site)
