"""The secrets of a cluster, in the format of `talosctl gen secrets`: generated, imported, exported.

No secret is in a repr or in the text of an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any, Literal, TypeVar

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa

from talos.documents.problems import ConfigError, ConfigProblem, require_none
from talos.secrets import pki
from talos.secrets.pki import Entropy, KeyPair, base64_of

_TOKEN_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"  # noqa: S105 - an alphabet
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_AUTHORITIES = {"etcd": "etcd", "k8s": "kubernetes", "k8saggregator": None, "os": "talos"}
_SECTIONS = {
    "cluster": {"id", "secret"},
    "secrets": {"bootstraptoken", "secretboxencryptionsecret", "aescbcencryptionsecret"},
    "trustdinfo": {"token"},
    "certs": {"etcd", "k8s", "k8saggregator", "k8sserviceaccount", "os"},
}
_Read = TypeVar("_Read")

_FIX = "import the file that `talosctl gen secrets` or this project's export wrote, whole and unchanged"


def system_entropy() -> Entropy:
    return Entropy(token_bytes)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class SecretsBundle:
    """Everything that makes a cluster this one and no other; who has it owns the cluster.

    `cluster_id` is an identifier, the rest is secret. One of the two encryption secrets is set: clusters of today's
    contracts have `secretbox_encryption_secret`, those that were born on old ones the other.
    """

    cluster_id: str
    cluster_secret: str = field(repr=False)
    bootstrap_token: str = field(repr=False)
    secretbox_encryption_secret: str | None = field(default=None, repr=False)
    aescbc_encryption_secret: str | None = field(default=None, repr=False)
    trustd_token: str = field(repr=False)
    etcd: KeyPair = field(repr=False)
    kubernetes: KeyPair = field(repr=False)
    aggregator: KeyPair = field(repr=False)
    service_account_key: str = field(repr=False)
    talos: KeyPair = field(repr=False)

    def export(self) -> str:
        """The bundle as `talosctl gen secrets` writes it; every key and certificate is base64 of its PEM text."""
        encryption = {
            "secretboxencryptionsecret": self.secretbox_encryption_secret,
            "aescbcencryptionsecret": self.aescbc_encryption_secret,
        }
        content = {
            "cluster": {"id": self.cluster_id, "secret": self.cluster_secret},
            "secrets": {
                "bootstraptoken": self.bootstrap_token,
                **{name: value for name, value in encryption.items() if value is not None},
            },
            "trustdinfo": {"token": self.trustd_token},
            "certs": {
                "etcd": _encoded(self.etcd),
                "k8s": _encoded(self.kubernetes),
                "k8saggregator": _encoded(self.aggregator),
                "k8sserviceaccount": {"key": base64_of(self.service_account_key)},
                "os": _encoded(self.talos),
            },
        }
        return yaml.safe_dump(content, sort_keys=False, default_flow_style=False, width=10**6)


def generate(entropy: Entropy | None = None, now: Callable[[], datetime] = utc_now) -> SecretsBundle:
    """A new cluster's secrets. CAs are valid for ten years from `now`; nothing is written anywhere."""
    source = system_entropy() if entropy is None else entropy
    start = now()
    authority = {
        name: pki.certificate_authority(
            source.ed25519_key() if name == "os" else source.ec_key(),
            organization=organization,
            now=start,
            entropy=source,
        )
        for name, organization in _AUTHORITIES.items()
    }
    return SecretsBundle(
        # Contract v1.13 and older write the id in base64's URL alphabet; v1.14 changes that for new clusters.
        cluster_id=base64.urlsafe_b64encode(source.octets(32)).decode(),
        cluster_secret=base64.b64encode(source.octets(32)).decode(),
        bootstrap_token=_token(source),
        secretbox_encryption_secret=base64.b64encode(source.octets(32)).decode(),
        trustd_token=_token(source),
        etcd=authority["etcd"],
        kubernetes=authority["k8s"],
        aggregator=authority["k8saggregator"],
        service_account_key=pki.private_key_pem(source.rsa_key()),
        talos=authority["os"],
    )


def with_new_authority(
    bundle: SecretsBundle,
    authority: Literal["talos", "kubernetes"],
    entropy: Entropy | None = None,
    now: Callable[[], datetime] = utc_now,
) -> SecretsBundle:
    """The bundle with a new CA for one API, all else as it was.

    Machines must trust the new CA before anything is signed by it: see `accepted_talos_cas` of a TalosCluster.
    """
    source = system_entropy() if entropy is None else entropy
    key = source.ed25519_key() if authority == "talos" else source.ec_key()
    made = pki.certificate_authority(key, organization=authority, now=now(), entropy=source)
    return replace(bundle, talos=made) if authority == "talos" else replace(bundle, kubernetes=made)


def load(text: str) -> SecretsBundle:
    """The bundle of an exported file, Talos's own or ours.

    ConfigError with everything that is wrong with it, naming key paths alone.
    """
    content = _parsed(text)
    problems: list[ConfigProblem] = []

    def read(get: Callable[[Mapping[str, Any], str], _Read], path: str) -> _Read | None:
        try:
            return get(content, path)
        except ConfigError as error:
            problems.extend(error.problems)
            return None

    for section in _SECTIONS:
        read(_known, section)
    encryption = {
        name: read(_optional, f"secrets.{name}") for name in ("secretboxencryptionsecret", "aescbcencryptionsecret")
    }
    read(_one_encryption, "secrets")
    texts = {path: read(_text, path) for path in ("cluster.id", "cluster.secret")}
    tokens = {path: read(_checked_token, path) for path in ("secrets.bootstraptoken", "trustdinfo.token")}
    pairs = {name: read(_pair, f"certs.{name}") for name in _AUTHORITIES}
    read(_signs_clients, "certs.os")
    service_account = read(_service_account, "certs.k8sserviceaccount.key")
    require_none(problems)
    return SecretsBundle(
        cluster_id=_got(texts["cluster.id"]),
        cluster_secret=_got(texts["cluster.secret"]),
        bootstrap_token=_got(tokens["secrets.bootstraptoken"]),
        secretbox_encryption_secret=encryption["secretboxencryptionsecret"],
        aescbc_encryption_secret=encryption["aescbcencryptionsecret"],
        trustd_token=_got(tokens["trustdinfo.token"]),
        etcd=_got(pairs["etcd"]),
        kubernetes=_got(pairs["k8s"]),
        aggregator=_got(pairs["k8saggregator"]),
        service_account_key=_got(service_account),
        talos=_got(pairs["os"]),
    )


def _got(value: _Read | None) -> _Read:
    """What was read without a problem."""
    assert value is not None  # noqa: S101
    return value


def _known(content: Mapping[str, Any], section: str) -> None:
    unknown = set(_mapping(content, section)) - _SECTIONS[section]
    if unknown:
        raise ConfigError(f"secrets bundle: {section} has {len(unknown)} unknown keys", fix=_FIX)


def _one_encryption(content: Mapping[str, Any], section: str) -> None:
    keys = [
        name for name in ("secretboxencryptionsecret", "aescbcencryptionsecret") if _mapping(content, section).get(name)
    ]
    if len(keys) != 1:
        raise ConfigError(
            "secrets bundle: exactly one of secrets.secretboxencryptionsecret and secrets.aescbcencryptionsecret"
            f" must be set, {len(keys)} are",
            fix=_FIX,
        )


def _signs_clients(content: Mapping[str, Any], path: str) -> None:
    """Silent where the pair itself is already a problem."""
    try:
        key = pki.load_private_key(_pair(content, path).key, f"{path}.key")
    except ConfigError:
        return
    if isinstance(key, rsa.RSAPrivateKey):
        raise ConfigError(f"{path}.key is an RSA key; Talos's API needs Ed25519 or ECDSA", fix=_FIX)


def _service_account(content: Mapping[str, Any], path: str) -> str:
    text = _decoded(content, path)
    pki.load_private_key(text, path)
    return text


def _token(source: Entropy) -> str:
    """Six characters, a dot, sixteen characters, each equally likely."""
    # 256 is no multiple of 36: octets from 252 on would favour the first characters.
    drawn: list[str] = []
    while len(drawn) < 22:
        drawn += [_TOKEN_CHARACTERS[octet % 36] for octet in source.octets(22) if octet < 252]
    return f"{''.join(drawn[:6])}.{''.join(drawn[6:22])}"


def _encoded(pair: KeyPair) -> dict[str, str]:
    return {"crt": base64_of(pair.certificate), "key": base64_of(pair.key)}


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(f"secrets bundle: not YAML{place}", fix=_FIX) from None
    if not isinstance(content, Mapping):
        raise ConfigError("secrets bundle: not a mapping", fix=_FIX)
    return content


def _mapping(content: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    section: Any = content
    for name in path.split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping):
        raise ConfigError(f"secrets bundle: {path} is missing", fix=_FIX)
    return section


def _optional(content: Mapping[str, Any], path: str) -> str | None:
    parent, _, name = path.rpartition(".")
    value = _mapping(content, parent).get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"secrets bundle: {path} is not a text", fix=_FIX)
    return value or None


def _text(content: Mapping[str, Any], path: str) -> str:
    value = _optional(content, path)
    if value is None:
        raise ConfigError(f"secrets bundle: {path} is missing", fix=_FIX)
    return value


def _checked_token(content: Mapping[str, Any], path: str) -> str:
    token = _text(content, path)
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(f"secrets bundle: {path} does not have the form abcdef.0123456789abcdef", fix=_FIX)
    return token


def _decoded(content: Mapping[str, Any], path: str) -> str:
    try:
        return base64.b64decode(_text(content, path), validate=True).decode()
    except ValueError:
        raise ConfigError(f"secrets bundle: {path} is not base64 of a PEM text", fix=_FIX) from None


def _pair(content: Mapping[str, Any], path: str) -> KeyPair:
    pair = KeyPair(certificate=_decoded(content, f"{path}.crt"), key=_decoded(content, f"{path}.key"))
    pki.require_match(pair, path)
    return pair
