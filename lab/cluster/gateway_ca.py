"""The CA of the gateway's certificate, as a site's operator has one: made on this machine, and given to cert-manager.

`lab up` makes it in the lab's folder. The assigner writes it into the Secret `lab-ca` of every cluster that the lab
gets, where the site's file names that Secret: as soon as its namespace is there, and again when it is gone.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from floor.namespaces import GATEWAY
from lab.cluster import operator_secret
from lab.cluster.api import Manifest
from lab.paths import Lab

NAME = "lab-ca"
"""The Secret; a site of the lab that names another one has another CA, and makes it itself."""
_KEY_OF_THE_NAME = ("certificates", "ca_secret")
_LIFETIME = timedelta(days=3650)
# A client whose clock is a little behind must still find it valid.
_EARLIER = timedelta(minutes=1)


def ensure(lab: Lab) -> None:
    """Make the CA unless the lab has one. Its key is for its owner alone."""
    if lab.gateway_ca.exists() and lab.gateway_ca_key.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key, f"CA of lab {lab.index}", datetime.now(UTC))
    _write(lab.gateway_ca_key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    _write(lab.gateway_ca, certificate.public_bytes(Encoding.PEM))


def is_named(site_file: Path) -> bool:
    """Whether the site's file names the lab's Secret."""
    return bool(operator_secret.value_of(site_file, *_KEY_OF_THE_NAME) == NAME)


def secret(lab: Lab) -> Manifest:
    """What the cluster is given. Raises OSError when the lab has no CA."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": GATEWAY},
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": base64.b64encode(lab.gateway_ca.read_bytes()).decode(),
            "tls.key": base64.b64encode(lab.gateway_ca_key.read_bytes()).decode(),
        },
    }


def wanted(lab: Lab) -> Manifest | None:
    """What the cluster is to have: nothing where its site names another CA."""
    return secret(lab) if is_named(lab.site_file) else None


def _self_signed(key: ec.EllipticCurvePrivateKey, name: str, now: datetime) -> x509.Certificate:
    """Of a CA that signs servers' certificates and no other CA's."""
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usages = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    may = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usages)
    return (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(may, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _write(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
