"""Keys of certificates that its system does not read, and certificates without a name, an issuer or a Secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.acme import ACCOUNT_SECRET
from components.specs.certificates import CertificatesSpec
from floor.problems import Path, Problem, shown
from stacks.site.reading.raw import address, at, items, mapping
from talos.documents.checks import pem_certificates

_SECTION = "certificates"
_ISSUERS = ("ca_secret", "acme", "cluster_issuer")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the section, as far as the values can be understood."""
    section = mapping(values.get(_SECTION))
    system = section.get("system", CertificatesSpec.model_fields["system"].default)
    if system == "none":
        yield from _unread(section)
        return
    if system not in ("external", "cert_manager"):
        return
    if not section.get("names"):
        yield Problem(
            path=(_SECTION,),
            what="lacks names: a certificate is for the names that clients call",
            got=f"system {system}",
            fix="set names, such as [llm.site.example], which DNS resolves to the gateway's address",
        )
    yield from _twice(section)
    yield from _pages(values, section)
    yield from _acme(section, system)
    yield from _of_the_account(values)
    issuers = [key for key in _ISSUERS if section.get(key) is not None]
    if len(issuers) != 1:
        yield Problem(
            path=(_SECTION,),
            what=f"has {' and '.join(issuers) or 'none'} of ca_secret, acme and cluster_issuer",
            got=f"system {system}",
            allowed="one of them: who issues the certificate",
            fix="name the Secret of a CA of your own, an ACME server, or a ClusterIssuer that you make",
        )
    secret = at(values, "gateway", "certificate_secret")
    if secret is None:
        yield Problem(
            path=("gateway",),
            what="lacks certificate_secret: cert-manager has no Secret to write the certificate into",
            got=f"certificates.system {system}",
            fix="set certificate_secret, such as inference-tls, and a port other than 80; or set certificates.system "
            "to none",
        )
    elif secret == section.get("ca_secret"):
        yield _overwritten((_SECTION, "ca_secret"), secret, "the CA")
    elif secret is not None and secret != ACCOUNT_SECRET and secret == at(section, "acme", "rfc2136", "tsig_secret"):
        yield _overwritten((_SECTION, "acme", "rfc2136", "tsig_secret"), secret, "the key")


def _of_the_account(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Secrets that have the name of the one with the account's key."""
    if not mapping(at(values, _SECTION, "acme")):
        return
    for path, other in (
        (("gateway", "certificate_secret"), "inference-tls"),
        ((_SECTION, "acme", "rfc2136", "tsig_secret"), "acme-tsig"),
    ):
        if at(values, *path) == ACCOUNT_SECRET:
            yield Problem(
                path=path,
                what=f"is {ACCOUNT_SECRET}, the Secret in which cert-manager keeps the account's key",
                got=ACCOUNT_SECRET,
                fix=f"choose another name, such as {other}",
            )


def _overwritten(path: Path, secret: Any, what: str) -> Problem:
    return Problem(
        path=path,
        what=f"is gateway.certificate_secret too: cert-manager would write the certificate over {what}",
        got=shown(secret),
        fix=f"give {what} a Secret of its own",
    )


def _acme(section: Mapping[str, Any], system: str) -> Iterator[Problem]:
    """Names that no record can prove, and what the cluster's own cert-manager does not read of this program."""
    acme = mapping(section.get("acme"))
    for index, name in enumerate(items(section.get("names")) if acme else ()):
        if address(name) is not None:
            yield Problem(
                path=(_SECTION, "names", str(index)),
                what="is an address, and by DNS an ACME server certifies names alone",
                got=shown(name),
                fix="write a name that DNS resolves to it, or take a ca_secret in the place of acme",
            )
    if acme.get("resolvers") and system == "external":
        yield Problem(
            path=(_SECTION, "acme", "resolvers"),
            what="is set, and the cluster's own cert-manager does not read it",
            got=shown(acme["resolvers"]),
            allowed="with system cert_manager",
            fix="take it out, and start that cert-manager with --dns01-recursive-nameservers",
        )
    if acme.get("ca") is not None and pem_certificates(acme["ca"]):
        yield Problem(
            path=(_SECTION, "acme", "ca"),
            what="is no certificate in PEM",
            fix="write the whole text, from -----BEGIN CERTIFICATE----- to the last -----END CERTIFICATE-----",
        )


def _unread(section: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in section.items():
        if key in CertificatesSpec.model_fields and key != "system" and value not in (None, [], ()):
            yield Problem(
                path=(_SECTION, str(key)),
                what="is set, and system none does not read it",
                got=shown(value),
                allowed="with system cert_manager or external",
                fix="take it out, or set system to cert_manager",
            )


def _pages(values: Mapping[str, Any], section: Mapping[str, Any]) -> Iterator[Problem]:
    """The portal's name, where its pages have the gateway's certificate."""
    secret, hostname = (at(values, "portal", key) for key in ("certificate_secret", "hostname"))
    if secret is None or secret != at(values, "gateway", "certificate_secret") or not isinstance(hostname, str):
        return
    covering = {hostname, f"*.{hostname.partition('.')[2]}"}
    if not covering & {str(name) for name in items(section.get("names"))}:
        yield Problem(
            path=(_SECTION, "names"),
            what=f"lacks {hostname}, and portal.certificate_secret is the Secret of this certificate",
            fix=f"add {hostname}, or name a Secret of its own there",
        )


def _twice(section: Mapping[str, Any]) -> Iterator[Problem]:
    names = section.get("names")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(path=(_SECTION, "names"), what=f"has {name} twice", fix="take one of the two out")
