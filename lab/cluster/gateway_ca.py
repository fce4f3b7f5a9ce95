"""The CA of the gateway's certificate, as a site's operator has one: made on this machine, and given to cert-manager.

`lab up` makes it in the lab's folder. The assigner writes it into the Secret `lab-ca` of every cluster that the lab
gets, where the site's file names that Secret: as soon as its namespace is there, and again when it is gone.
"""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from kubernetes import client

from floor.namespaces import GATEWAY
from lab.cluster import api
from lab.cluster.api import Manifest
from lab.cluster.parts import metadata_of
from lab.cluster.watching import Listing
from lab.paths import Lab

NAME = "lab-ca"
"""The Secret; a site of the lab that names another one has another CA, and makes it itself."""
_KEY_OF_THE_NAME = ("config", "inference-platform:site", "certificates", "ca_secret")
_LIFETIME = timedelta(days=3650)
# A client whose clock is a little behind must still find it valid.
_EARLIER = timedelta(minutes=1)

log = logging.getLogger(__name__)


def ensure(lab: Lab) -> None:
    """Make the CA unless the lab has one. Its key is for its owner alone."""
    if lab.gateway_ca.exists() and lab.gateway_ca_key.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key, f"CA of lab {lab.index}", datetime.now(UTC))
    _write(lab.gateway_ca_key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    _write(lab.gateway_ca, certificate.public_bytes(Encoding.PEM))


def is_named(site_file: Path) -> bool:
    """Whether the site's file names the lab's Secret; False for one that cannot be read now, as in mid-edit."""
    try:
        value = yaml.safe_load(site_file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    for key in _KEY_OF_THE_NAME:
        value = value.get(key) if isinstance(value, dict) else None
    return bool(value == NAME)


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


class GatewayCaController:
    """Keeps the Secret in a cluster whose site wants it."""

    def __init__(self, connection: client.ApiClient, lab: Lab) -> None:
        self._connection = connection
        self._core = client.CoreV1Api(connection)
        self._lab = lab

    @property
    def listings(self) -> list[Listing]:
        """What to follow: the namespace, and the Secret by its name, which is all that the account may read."""
        return [
            partial(self._core.list_namespace, field_selector=f"metadata.name={GATEWAY}"),
            partial(self._core.list_namespaced_secret, GATEWAY, field_selector=f"metadata.name={NAME}"),
        ]

    def reconcile(self) -> None:
        """Write the Secret unless it is there as it should be."""
        if not is_named(self._lab.site_file):
            return
        spaces, held = (listing(_request_timeout=10).items for listing in self.listings)
        if not any(metadata_of(space).deletion_timestamp is None for space in spaces):
            return
        wanted = secret(self._lab)
        if any(item.data == wanted["data"] for item in held):
            return
        api.apply(self._connection, wanted)
        log.info("the lab's CA is in the Secret %s/%s", GATEWAY, NAME)


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
