"""The gateway's certificate, made and renewed by cert-manager: who issues it, and for which names."""

from __future__ import annotations

import base64
import ipaddress
from typing import Any

from components.specs.acme import ACCOUNT_SECRET, AcmeSpec, bracketed
from components.specs.certificates import CertificatesSpec

_GROUP = "cert-manager.io"
_NAME = "inference"
# Of its own: a Certificate is issued again when the name of its issuer changes, and not when the issuer does.
_ACME_NAME = "inference-acme"


def private_issuer(namespace: str, ca_secret: str) -> dict[str, Any]:
    """An issuer that signs with the key in this Secret, which the program never reads."""
    return _issuer(namespace, _NAME, {"ca": {"secretName": ca_secret}})


def acme_issuer(namespace: str, acme: AcmeSpec) -> dict[str, Any]:
    """An issuer with an account at this ACME server, whose key cert-manager makes. Ready once it is registered."""
    dns = acme.rfc2136
    update = {
        "nameserver": bracketed(dns.nameserver),
        "protocol": "TCP",
        "tsigKeyName": dns.tsig_key,
        "tsigAlgorithm": dns.tsig_algorithm.replace("-", "").upper(),
        "tsigSecretSecretRef": {"name": dns.tsig_secret, "key": "secret"},
    }
    account = {
        "server": acme.server,
        **({"email": acme.email} if acme.email else {}),
        **({"caBundle": base64.b64encode(acme.ca.encode()).decode()} if acme.ca else {}),
        "privateKeySecretRef": {"name": ACCOUNT_SECRET},
        "solvers": [{"dns01": {"rfc2136": update}}],
    }
    return _issuer(namespace, _ACME_NAME, {"acme": account})


def _issuer(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Issuer",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": "condition=Ready"},
        },
        "spec": spec,
    }


def certificate(namespace: str, secret: str, spec: CertificatesSpec) -> dict[str, Any]:
    """The certificate that cert-manager writes into this Secret, and writes again after two thirds of its life.

    A new key comes with each. 90 days, by cert-manager's default, unless the issuer decides.
    """
    addresses = [name for name in spec.names if is_address(name)]
    hosts = [name for name in spec.names if name not in addresses]
    issuer = (_NAME if spec.acme is None else _ACME_NAME, "Issuer")
    if spec.cluster_issuer is not None:
        issuer = (spec.cluster_issuer, "ClusterIssuer")
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Certificate",
        "metadata": {
            "name": _NAME,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": "condition=Ready"},
        },
        "spec": {
            "secretName": secret,
            **({"dnsNames": hosts} if hosts else {}),
            **({"ipAddresses": addresses} if addresses else {}),
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
            "issuerRef": {"group": _GROUP, "kind": issuer[1], "name": issuer[0]},
        },
    }


def is_address(name: str) -> bool:
    """Whether a name of a certificate is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
