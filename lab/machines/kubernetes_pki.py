"""The certificates of the emulated control plane, from the Kubernetes CA in the machines' config."""

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
    issuer = pki.load_certificate(authority.certificate, "cluster.ca.crt")
    signer = pki.load_private_key(authority.key, "cluster.ca.key")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "admin"),
        ]
    )
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(usages, critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in dict.fromkeys(names)]), critical=False)
        .sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "admin.crt": certificate.public_bytes(serialization.Encoding.PEM).decode(),
        "admin.key": pki.private_key_pem(key),
    }


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
