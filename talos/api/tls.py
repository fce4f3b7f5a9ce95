"""Who the machine is and who we are: mutual TLS with the cluster's CA, or a pinned key in maintenance mode.

A pin is checked after the handshake and before the first byte of a request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from floor.problems import WrongValueError
from talos.api.errors import UntrustedMachineError

# Talos labels its Ed25519 keys with a name of its own; inside is PKCS#8, which TLS libraries know as PRIVATE KEY.
_TALOS_LABEL = re.compile(rb"-----(BEGIN|END) ED25519 PRIVATE KEY-----")


@dataclass(frozen=True)
class MutualTls:
    """A configured machine: its certificate is signed by the cluster's CA, ours too. All three are PEM."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Pinned:
    """A machine in maintenance mode whose key is known: base64 of the SHA-256 of its SubjectPublicKeyInfo."""

    fingerprint: str

    def __post_init__(self) -> None:
        """Raise WrongValueError for what cannot be a fingerprint."""
        try:
            length = len(base64.b64decode(self.fingerprint, validate=True))
        except (binascii.Error, ValueError):
            length = 0
        if length != hashlib.sha256().digest_size:
            raise WrongValueError(
                "the fingerprint of a machine is another text",
                got=repr(self.fingerprint),
                allowed="base64 of 32 bytes",
                fix="copy it from the machine's console",
            )


@dataclass(frozen=True)
class FirstContact:
    """A machine in maintenance mode whose key is unknown: any answer is believed. An explicit choice."""


Trust = MutualTls | Pinned | FirstContact


class TrustingContext(ssl.SSLContext):
    """An SSLContext that also holds a peer to a pinned key."""

    pin: str | None = None
    shown: str = ""
    """The fingerprint of the key that was shown last, where no CA vouches for it."""

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """As the base class, and then the pin; raises ssl.SSLCertVerificationError."""
        secured = super().wrap_socket(*arguments, **named)
        try:
            self.check_pin(secured)
        except BaseException:
            secured.close()
            raise
        return secured

    def check_pin(self, peer: ssl.SSLSocket | ssl.SSLObject) -> None:
        """Raise ssl.SSLCertVerificationError if the peer's key is not the pinned one."""
        if self.verify_mode is not ssl.CERT_NONE:
            return
        self.shown = fingerprint(peer.getpeercert(binary_form=True) or b"")
        if self.pin not in {None, self.shown}:
            raise ssl.SSLCertVerificationError(f"the key's fingerprint is {self.shown}, expected {self.pin}")


def context(trust: Trust) -> TrustingContext:
    """The TLS settings for a machine; UntrustedMachineError if our own certificate or key cannot be used."""
    settings = TrustingContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.minimum_version = ssl.TLSVersion.TLSv1_3
    settings.set_alpn_protocols(["h2"])
    if not isinstance(trust, MutualTls):
        settings.check_hostname = False
        settings.verify_mode = ssl.CERT_NONE
        settings.pin = trust.fingerprint if isinstance(trust, Pinned) else None
        return settings
    try:
        settings.load_verify_locations(cadata=trust.ca.decode())
        _load_identity(settings, trust.certificate + b"\n" + _TALOS_LABEL.sub(rb"-----\1 PRIVATE KEY-----", trust.key))
    except (ssl.SSLError, ValueError):
        # The library's text may quote the file; nothing in it helps.
        raise UntrustedMachineError(
            "the talosconfig's CA, certificate or key is no usable PEM, or key and certificate differ"
        ) from None
    return settings


def _load_identity(settings: ssl.SSLContext, chain: bytes) -> None:
    # load_cert_chain reads files only; memory that has a name keeps the key off the disk.
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("identity")
        try:
            os.write(memory, chain)
            settings.load_cert_chain(f"/proc/self/fd/{memory}")
        finally:
            os.close(memory)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "identity")
        file.touch(mode=0o600)
        file.write_bytes(chain)
        settings.load_cert_chain(file)


def fingerprint(certificate: bytes) -> str:
    """Talos's fingerprint of a DER certificate: base64 of the SHA-256 of its SubjectPublicKeyInfo.

    Raises ssl.SSLCertVerificationError for bytes that are no certificate.
    """
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise ssl.SSLCertVerificationError("the machine showed no readable certificate") from None
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()
