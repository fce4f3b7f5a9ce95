"""The certificates of the emulated control plane and its kubelets, from the Kubernetes CA in the machines' config."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from talos.secrets import pki
from talos.secrets.pki import KeyPair

_LIFETIME = timedelta(days=365)
# A client whose clock is a little behind must still find the certificate valid.
_EARLIER = timedelta(minutes=1)


def control_plane_pki(authority: KeyPair, names: Sequence[str]) -> dict[str, str]:
    """PEM by file name: the CA, and `admin`, which kwokctl lets serve the API and call it, valid for these names."""
    usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    admin = _issue(authority, "system:masters", "admin", usages, names)
    return {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "admin.crt": admin.certificate,
        "admin.key": admin.key,
    }


def kubelet_client(authority: KeyPair, node: str) -> KeyPair:
    """What a kubelet gets for its request with a bootstrap token: kubernetes.io/kube-apiserver-client-kubelet.

    A user `system:node:NAME` of group `system:nodes`, whom Node authorizer and NodeRestriction know by both.
    """
    return _issue(authority, "system:nodes", f"system:node:{node}", (ExtendedKeyUsageOID.CLIENT_AUTH,), ())


def _issue(
    authority: KeyPair, organization: str, name: str, usages: Sequence[x509.ObjectIdentifier], names: Sequence[str]
) -> KeyPair:
    issuer = pki.load_certificate(authority.certificate, "cluster.ca.crt")
    signer = pki.load_private_key(authority.key, "cluster.ca.key")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if names:
        hosts = x509.SubjectAlternativeName([_name(host) for host in dict.fromkeys(names)])
        builder = builder.add_extension(hosts, critical=False)
    certificate = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), pki.private_key_pem(key))


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
