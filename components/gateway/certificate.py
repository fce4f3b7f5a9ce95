"""The gateway's certificate, made and renewed by cert-manager: who issues it, and for which names."""

from __future__ import annotations

import ipaddress
from typing import Any

from components.specs.certificates import CertificatesSpec

_GROUP = "cert-manager.io"
_NAME = "inference"


def private_issuer(namespace: str, ca_secret: str) -> dict[str, Any]:
    """An issuer that signs with the key in this Secret, which the program never reads."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Issuer",
        "metadata": {
            "name": _NAME,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": "condition=Ready"},
        },
        "spec": {"ca": {"secretName": ca_secret}},
    }


def certificate(namespace: str, secret: str, spec: CertificatesSpec) -> dict[str, Any]:
    """The certificate that cert-manager writes into this Secret, and writes again after two thirds of its life.

    A new key comes with each. 90 days, by cert-manager's default, unless the issuer decides.
    """
    addresses = [name for name in spec.names if is_address(name)]
    hosts = [name for name in spec.names if name not in addresses]
    issuer = (_NAME, "Issuer") if spec.cluster_issuer is None else (spec.cluster_issuer, "ClusterIssuer")
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
