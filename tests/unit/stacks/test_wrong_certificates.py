"""Certificates whose keys their system does not read, or that nothing could issue, write or use."""

from __future__ import annotations

from typing import Any

import pytest

from components.specs.certificates import CertificatesSpec
from floor.problems import SiteError
from stacks.facts import versions
from stacks.plan.charts import optional_parts
from stacks.plan.conflicts import conflicts
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "opening 13")

SECTION = "certificates"
GOOD = {"system": "cert_manager", "names": ["llm.site.example"], "ca_secret": "site-ca"}
DNS = {"nameserver": "10.5.0.2", "tsig_key": "inference-acme", "tsig_secret": "acme-tsig"}
ACME = {"server": "https://acme.site.example/directory", "email": "platform@site.example", "rfc2136": DNS}
BY_ACME = {"system": "cert_manager", "names": ["llm.site.example"], "acme": ACME}


@pytest.mark.parametrize(
    ("section", "key", "what"),
    [
        ({**GOOD, "system": "none", "ca_secret": None}, f"{SECTION}.names", "is set, and system none does not read it"),
        ({**GOOD, "names": []}, SECTION, "lacks names: a certificate is for the names that clients call"),
        ({**GOOD, "names": ["a.example", "b.example", "a.example"]}, f"{SECTION}.names", "has a.example twice"),
        ({**GOOD, "ca_secret": None}, SECTION, "has none of ca_secret, acme and cluster_issuer"),
        (
            {**GOOD, "system": "external", "cluster_issuer": "a"},
            SECTION,
            "has ca_secret and cluster_issuer of ca_secret,",
        ),
        ({**GOOD, "acme": ACME}, SECTION, "has ca_secret and acme of ca_secret, acme and cluster_issuer"),
        ({**GOOD, "ca_secret": "inference-tls"}, f"{SECTION}.ca_secret", "is gateway.certificate_secret too"),
        ({**GOOD, "ca_secret": "Site CA"}, f"{SECTION}.ca_secret", "not a name of lower-case letters"),
        ({**GOOD, "ca_secret": None, "cluster_issuer": "a/b"}, f"{SECTION}.cluster_issuer", "not a name"),
        ({**GOOD, "names": ["https://llm.site.example"]}, f"{SECTION}.names.0", "not a host name, *.DOMAIN, or an"),
        ({**GOOD, "names": ["*.10.0.0.1"]}, f"{SECTION}.names.0", "not a host name, *.DOMAIN, or an address"),
    ],
)
def test_a_certificate_that_cannot_be_is_refused_at_its_key(section: dict[str, Any], key: str, what: str) -> None:
    refused_and_fixed(Wrong({SECTION: section}, key, what, {SECTION: GOOD}))


@pytest.mark.parametrize(
    ("section", "key", "what"),
    [
        ({"names": ["llm.site.example", "10.5.0.100"]}, "names.1", "is an address, and by DNS an ACME server"),
        ({"acme": {**ACME, "server": "http://acme.site.example"}}, "acme.server", "not the https address of an ACME"),
        ({"acme": {**ACME, "email": "platform"}}, "acme.email", "not an e-mail address"),
        ({"acme": {**ACME, "ca": "the site's"}}, "acme.ca", "is no certificate in PEM"),
        ({"acme": {**ACME, "resolvers": ["10.5.0.2", "dns.site.example"]}}, "acme.resolvers.1", "not an address, with"),
        ({"acme": {**ACME, "resolvers": ["10.5.0.2:70000"]}}, "acme.resolvers.0", "not an address, with a port"),
        (
            {"acme": {**ACME, "rfc2136": {**DNS, "nameserver": "dns:53:1"}}},
            "acme.rfc2136.nameserver",
            "not a host name",
        ),
        ({"acme": {**ACME, "rfc2136": {**DNS, "nameserver": "fe80::2%eth0"}}}, "acme.rfc2136.nameserver", "not a host"),
        ({"acme": {**ACME, "rfc2136": {**DNS, "nameserver": "dns:0"}}}, "acme.rfc2136.nameserver", "not a host name"),
        ({"acme": {**ACME, "rfc2136": {**DNS, "tsig_key": "a key"}}}, "acme.rfc2136.tsig_key", "not the name of a key"),
        (
            {"acme": {**ACME, "rfc2136": {**DNS, "tsig_secret": "A/b"}}},
            "acme.rfc2136.tsig_secret",
            "not a name of lower",
        ),
        (
            {"acme": {**ACME, "rfc2136": {**DNS, "tsig_secret": "inference-tls"}}},
            "acme.rfc2136.tsig_secret",
            "is gateway.certificate_secret too: cert-manager would write the certificate over the key",
        ),
        (
            {"acme": {**ACME, "rfc2136": {**DNS, "tsig_secret": "inference-acme"}}},
            "acme.rfc2136.tsig_secret",
            "is inference-acme, the Secret in which cert-manager keeps the account's key",
        ),
        ({"acme": {**ACME, "server": "https://acme..example/a"}}, "acme.server", "not the https address of an ACME"),
        ({"acme": {**ACME, "server": "https://acme.example:70000/a"}}, "acme.server", "not the https address of an"),
        ({"acme": {**ACME, "resolvers": ["fd00::2%eth0"]}}, "acme.resolvers.0", "not an address, with a port"),
        ({"acme": {**ACME, "resolvers": ["10.5.0.2:\u0663"]}}, "acme.resolvers.0", "not an address, with a port"),
        (
            {"acme": {**ACME, "rfc2136": {**DNS, "tsig_algorithm": "hmac-md5"}}},
            "acme.rfc2136.tsig_algorithm",
            "hmac-sha256",
        ),
        (
            {"system": "external", "acme": {**ACME, "resolvers": ["10.5.0.2"]}},
            "acme.resolvers",
            "is set, and the cluster's own cert-manager does not read it",
        ),
    ],
)
def test_an_acme_server_that_could_not_issue_is_refused_at_its_key(
    section: dict[str, Any], key: str, what: str
) -> None:
    refused_and_fixed(Wrong({SECTION: BY_ACME | section}, f"{SECTION}.{key}", what, {SECTION: BY_ACME}))


def test_the_certificate_is_not_written_over_the_key_of_the_account() -> None:
    key, change = "gateway.certificate_secret", {SECTION: BY_ACME, "gateway.certificate_secret": "inference-acme"}
    refused_and_fixed(Wrong(change, key, "keeps the account's key", {key: "inference-tls"}))
    assert plan_values(changed(prod(), {**change, SECTION: GOOD}), "site.yaml").site


@pytest.mark.parametrize("server", ["https://acme.site.example", "https://10.5.0.9:14000/dir", "https://[fd00::9]:1/d"])
def test_a_directory_is_at_a_name_or_an_address(server: str) -> None:
    section = {**BY_ACME, "acme": {**ACME, "server": server}}
    assert plan_values(changed(prod(), {SECTION: section}), "site.yaml").site


def test_a_key_in_the_place_of_its_secret_s_name_is_not_printed() -> None:
    acme = {**ACME, "rfc2136": {**DNS, "tsig_secret": "c2VjcmV0a2V5=="}}
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {SECTION: {**BY_ACME, "acme": acme}}), "site.yaml")
    assert "c2VjcmV0a2V5" not in str(caught.value)


@pytest.mark.parametrize("server", ["10.5.0.2", "10.5.0.2:5353", "fd00::2", "[fd00::2]", "[fd00::2]:5353"])
def test_dns_servers_are_named_with_a_port_and_without(server: str) -> None:
    by_name = {**DNS, "nameserver": "dns.site.example:5353"}
    for dns in (by_name, {**DNS, "nameserver": server}):
        acme = {**ACME, "resolvers": [server], "rfc2136": dns}
        assert plan_values(changed(prod(), {SECTION: {**BY_ACME, "acme": acme}}), "site.yaml").site


def test_a_wildcard_is_certified_by_dns() -> None:
    assert plan_values(changed(prod(), {SECTION: {**BY_ACME, "names": ["*.site.example"]}}), "site.yaml").site


@pytest.mark.parametrize("name", ["llm.site.example", "*.site.example", "10.1.0.1", "fd00::1"])
def test_names_and_addresses_are_certified(name: str) -> None:
    assert plan_values(changed(prod(), {SECTION: {**GOOD, "names": [name]}}), "site.yaml").site


def test_a_certificate_without_a_secret_to_write_it_into_is_refused() -> None:
    firewall = {"cluster.machines.firewall.load_balancer_ports": [80]}
    plain = {SECTION: GOOD, "gateway.port": 80, "gateway.certificate_secret": None, **firewall}
    refused_and_fixed(Wrong(plain, "gateway", "lacks certificate_secret", {"gateway.certificate_secret": "tls"}))


def test_a_site_that_has_no_word_of_it_makes_its_own_secret() -> None:
    site = plan_values(changed(prod(), {SECTION: {}}), "site.yaml").site
    assert site.certificates == CertificatesSpec()
    assert site.gateway.certificate_secret == "inference-tls"


def test_definitions_come_to_sites_whose_cert_manager_is_the_programs() -> None:
    needs = {
        system: "cert_manager" in optional_parts(plan_values(changed(prod(), {SECTION: section}), "site.yaml").site)
        for system, section in (("none", {}), ("external", {**GOOD, "system": "external"}), ("cert_manager", GOOD))
    }
    assert needs == {"none": False, "external": False, "cert_manager": True}


def test_a_cert_manager_that_does_not_support_the_kubernetes_is_refused() -> None:
    pins = versions.load().model_copy(update={"kubernetes": "v1.32.9"})
    site = plan_values(changed(prod(), {SECTION: GOOD}), "site.yaml").site
    assert "cert-manager-kubernetes" in {conflict.row.id for conflict in conflicts(pins, site)}
    other = site.model_copy(update={"certificates": CertificatesSpec()})
    assert "cert-manager-kubernetes" not in {conflict.row.id for conflict in conflicts(pins, other)}
