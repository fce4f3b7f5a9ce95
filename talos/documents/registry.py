"""Documents on images and trust: mirrors, credentials and TLS of registries, trusted roots, image signatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from talos.documents import checks
from talos.documents.document import Document, Part, checked, wired
from talos.documents.problems import ConfigProblem


@dataclass(frozen=True, kw_only=True)
class Endpoint(Part):
    """A mirror's address; with `override_path` its path is taken as it is, without the registry's `/v2`."""

    url: str = field(metadata=checked(checks.url("http", "https")))
    override_path: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryMirrorConfig(Document):
    """Where images of the registry `name` (`docker.io`, `*` for all) are looked for, in order.

    With `skip_fallback` the registry itself is never asked, as an air-gapped site requires.
    """

    kind: ClassVar[str] = "RegistryMirrorConfig"

    name: str
    endpoints: tuple[Endpoint, ...]
    skip_fallback: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryAuthConfig(Document):
    """Credentials for the registry host `name`: a user and a password, `auth` (both in base64), or a token."""

    kind: ClassVar[str] = "RegistryAuthConfig"

    name: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    auth: str | None = field(default=None, repr=False)
    identity_token: str | None = field(default=None, repr=False)

    def disagreements(self) -> Iterator[ConfigProblem]:
        forms = (self.username is not None and self.password is not None, self.auth, self.identity_token)
        if sum(map(bool, forms)) != 1 or (self.username is None) != (self.password is None):
            yield ConfigProblem(
                path=("username",),
                what="credentials are not of one form",
                allowed="username and password, or auth, or identity_token",
                fix="give one form, whole",
            )


@dataclass(frozen=True, kw_only=True)
class ClientIdentity(Part):
    """A client certificate and its key, both PEM; the key as PKCS#8 (`PRIVATE KEY`), Talos refuses other forms."""

    certificate: str = field(metadata=wired("cert", check=checks.pem_certificates))
    key: str = field(
        repr=False,
        metadata=checked(
            checks.expect(lambda text: "-----BEGIN PRIVATE KEY-----" in text, "a PKCS#8 key in PEM form (PRIVATE KEY)")
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RegistryTLSConfig(Document):
    """TLS towards the registry host `name`: the CA to trust (PEM), and a client's identity where it asks for one."""

    kind: ClassVar[str] = "RegistryTLSConfig"

    name: str
    client_identity: ClientIdentity | None = None
    ca: str | None = field(default=None, metadata=checked(checks.pem_certificates))
    insecure_skip_verify: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TrustedRootsConfig(Document):
    """CA certificates (PEM, one or several) that the whole machine trusts in addition to the usual ones."""

    kind: ClassVar[str] = "TrustedRootsConfig"

    name: str
    certificates: str = field(metadata=checked(checks.pem_certificates))


@dataclass(frozen=True, kw_only=True)
class Keyless(Part):
    """Signed through an OIDC issuer by this subject."""

    issuer: str
    subject: str | None = None
    subject_regex: str | None = None

    def disagreements(self) -> Iterator[ConfigProblem]:
        if not self.subject and not self.subject_regex:
            yield ConfigProblem(path=("subject",), what="is missing, and so is subject_regex", fix="name who signs")


@dataclass(frozen=True, kw_only=True)
class ImageRule(Part):
    """What images whose registry and repository match the glob `image` must show: a signature, or one fixed answer.

    Exactly one of `skip`, `deny`, `keyless` and `public_key` (a PEM certificate); the first matching rule decides.
    """

    image: str
    skip: bool | None = None
    deny: bool | None = None
    keyless: Keyless | None = None
    public_key: str | None = field(
        default=None, metadata=wired("publicKey", lambda pem: {"certificate": pem}, checks.pem_certificates)
    )

    def disagreements(self) -> Iterator[ConfigProblem]:
        answers = [name for name in ("skip", "deny", "keyless", "public_key") if getattr(self, name)]
        if len(answers) != 1:
            yield ConfigProblem(
                path=("image",),
                what="has not one answer",
                got=", ".join(answers) or "none",
                allowed="exactly one of skip, deny, keyless, public_key",
                fix="give this rule one answer",
            )


@dataclass(frozen=True, kw_only=True)
class ImageVerificationConfig(Document):
    """Rules for every image that the machine pulls, Talos's own included."""

    kind: ClassVar[str] = "ImageVerificationConfig"

    rules: tuple[ImageRule, ...]
