"""Keys of certificates that its system does not read, and certificates without a name, an issuer or a Secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.certificates import CertificatesSpec
from floor.problems import Problem, shown
from stacks.site.reading.raw import at, mapping

_SECTION = "certificates"
_ISSUERS = ("ca_secret", "cluster_issuer")


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
    issuers = [key for key in _ISSUERS if section.get(key) is not None]
    if len(issuers) != 1:
        yield Problem(
            path=(_SECTION,),
            what=f"has {'both' if issuers else 'neither'} of ca_secret and cluster_issuer",
            got=f"system {system}",
            allowed="one of them: who issues the certificate",
            fix="name the Secret of a CA of your own, or a ClusterIssuer that you make",
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
        yield Problem(
            path=(_SECTION, "ca_secret"),
            what="is gateway.certificate_secret too: cert-manager would write the certificate over the CA",
            got=shown(secret),
            fix="give the CA a Secret of its own",
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


def _twice(section: Mapping[str, Any]) -> Iterator[Problem]:
    names = section.get("names")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(path=(_SECTION, "names"), what=f"has {name} twice", fix="take one of the two out")
