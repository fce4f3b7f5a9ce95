"""Secrets that a store fills: that the store is one, that each is read by something, and by no other writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.specs.secrets import SecretsSpec
from floor.problems import Path, Problem, nearest, shown
from stacks.facts import catalogue
from stacks.site.reading.raw import address, at, host_of, mapping
from stacks.site.secret_references import SecretReference, secret_references
from talos.documents.checks import pem_certificates

_SECTION = "secrets"
_STORES = ("existing", "vault", "kubernetes")
_DEFAULTS = {key: field.default for key, field in SecretsSpec.model_fields.items()}
_REMOTE: Path = (_SECTION, "remote")
# Owners, and beginnings of names, of the repositories at the hub that ask for a licence to be accepted.
_GATED = ("meta-llama/", "google/gemma-3-")
_BOTH = ("ca", "token_secret")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the section, as far as the values can be understood."""
    yield from _backups(values)
    section = mapping(values.get(_SECTION))
    system = section.get("system", SecretsSpec.model_fields["system"].default)
    if system == "none":
        yield from _unread(section)
        return
    if system not in ("external", "external_secrets"):
        return
    yield from _store(section, system)
    yield from _kubernetes(mapping(at(section, "store", "kubernetes")))
    for kind in ("vault", "kubernetes"):
        yield from _own_pod(kind, at(section, "store", kind, "server"))
        ca = at(section, "store", kind, "ca")
        if ca is not None and pem_certificates(ca):
            yield Problem(
                path=(_SECTION, "store", kind, "ca"),
                what="is no certificate in PEM",
                fix="write the whole text, from -----BEGIN CERTIFICATE----- to the last -----END CERTIFICATE-----",
            )
    yield from _filled(values, section)


def _backups(values: Mapping[str, Any]) -> Iterator[Problem]:
    """A bucket that no backup can be written to. Machines of the site's own have no role that a cloud would know."""
    longhorn = mapping(at(values, "storage", "longhorn"))
    target = longhorn.get("backup_target")
    bucket = isinstance(target, str) and target.startswith(("s3://", "azblob://"))
    if bucket and longhorn.get("backup_credential_secret") is None and at(values, "cluster", "machines"):
        yield Problem(
            path=("storage", "longhorn", "backup_target"),
            what="is a bucket, and no Secret has its credentials, so no backup is written",
            got=shown(target),
            allowed="a bucket with backup_credential_secret, or an NFS server",
            fix="name the Secret in longhorn-system that has them as backup_credential_secret",
        )


def _gated(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Models that the hub gives to accounts alone which have accepted a licence."""
    weights = mapping(at(values, "storage", "weights"))
    if weights.get("source", "hub") != "hub" or weights.get("token_secret") is not None:
        return
    for name, model in mapping(values.get("models")).items():
        entry, engine = mapping(model).get("catalogue"), at(model, "server", "engine")
        repository = catalogue.load(entry).repository if entry in catalogue.names() else ""
        if repository.startswith(_GATED) and engine in (None, "vllm"):
            yield Problem(
                path=("models", str(name), "catalogue"),
                what=f"is {repository}, which the hub gives to no one without a token",
                got=shown(entry),
                fix="accept its licence at the hub, and name the Secret with the token as storage.weights.token_secret",
            )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Secrets that the site names and no store fills: they are made by hand. And one that it does not name."""
    yield from _gated(values)
    section = mapping(values.get(_SECTION))
    if section.get("system", "none") == "none":
        return
    remote = mapping(section.get("remote"))
    for reference in secret_references(values):
        if reference.name not in remote:
            yield Problem(
                path=reference.path,
                what=f"names a Secret in {reference.namespace} that secrets.remote does not have: you make it, with "
                + " and ".join(reference.keys),
                got=shown(reference.name),
                fix="add it to secrets.remote, or make it before `up`",
            )


def _unread(section: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in section.items():
        if key in SecretsSpec.model_fields and value not in (None, {}, _DEFAULTS[key]):
            yield Problem(
                path=(_SECTION, str(key)),
                what="is set, and system none does not read it",
                allowed="with system external_secrets or external",
                fix="set system to external_secrets, or take it out: Secrets that a store filled go with it",
            )


def _store(section: Mapping[str, Any], system: str) -> Iterator[Problem]:
    store = mapping(section.get("store"))
    named = [key for key in _STORES if store.get(key) is not None]
    if len(named) != 1:
        yield Problem(
            path=(_SECTION, "store") if store else (_SECTION,),
            what=f"has {' and '.join(named)} as its store" if named else "has no store: keys come from nowhere",
            got=f"system {system}",
            allowed=f"one of {', '.join(f'store.{key}' for key in _STORES)}",
            fix="name a ClusterSecretStore that you make as store.existing, or describe Vault or a namespace",
        )
    for key in named if system == "external" else ():
        if key != "existing":
            yield Problem(
                path=(_SECTION, "store", key),
                what="is a store that the program declares, and with system external it declares none",
                got=f"system {system}",
                allowed="store.existing, which the cluster's own external-secrets reads",
                fix="make a ClusterSecretStore and name it as store.existing, or set system to external_secrets",
            )


def _kubernetes(store: Mapping[str, Any]) -> Iterator[Problem]:
    path, server = (_SECTION, "store", "kubernetes"), store.get("server")
    for key in _BOTH:
        if (store.get(key) is None) != (server is None):
            yield Problem(
                path=(*path, key) if server is None else path,
                what=f"is set, and no server reads {key}" if server is None else f"lacks {key}, and has a server",
                allowed=f"{key} with server alone, and always with it",
                fix="take it out, or name the other cluster's API server" if server is None else f"set {key}",
            )


def _own_pod(kind: str, server: Any) -> Iterator[Problem]:
    host = host_of(server)
    ip = address(host)
    if f".{host}".endswith(".localhost") or (ip is not None and (ip.is_loopback or ip.is_unspecified)):
        yield Problem(
            path=(_SECTION, "store", kind, "server"),
            what="is the pod of external-secrets itself, which has no keys",
            got=shown(server),
            fix="name the server's host or address as pods reach it",
        )


def _filled(values: Mapping[str, Any], section: Mapping[str, Any]) -> Iterator[Problem]:
    by_name = defaultdict[str, list[SecretReference]](list)
    for reference in secret_references(values):
        by_name[reference.name].append(reference)
    for name, remote in mapping(section.get("remote")).items():
        readers = by_name.get(str(name), [])
        if not readers:
            yield _unnamed(values, str(name), sorted(by_name))
            continue
        spaces = sorted({reader.namespace for reader in readers})
        if len(spaces) > 1:
            yield Problem(
                path=(*_REMOTE, str(name)),
                what=f"is the name of a Secret in {' and of one in '.join(spaces)}",
                fix=f"give one another name, where {' or '.join('.'.join(reader.path) for reader in readers)} has it",
            )
        yield from _properties(str(name), mapping(remote), readers)
        yield from _itself(str(name), mapping(remote), spaces, mapping(at(section, "store", "kubernetes")))


def _unnamed(values: Mapping[str, Any], name: str, known: Sequence[str]) -> Problem:
    path = (*_REMOTE, name)
    if name == at(values, "gateway", "certificate_secret"):
        return Problem(
            path=path,
            what="is gateway.certificate_secret, which cert-manager writes: two would write it",
            got=f"certificates.system {shown(at(values, 'certificates', 'system'))}",
            fix="take it out, and give gateway.certificate_secret another name if the store has filled this one; or "
            "set certificates.system to none",
        )
    near = nearest(name, known)
    return Problem(
        path=path,
        what="is no Secret that another key of this file names, so nothing would read it",
        near=near,
        allowed=", ".join(known) or "none: this file names no Secret",
        fix=f"write {near}" if near else "take it out, or name it where it is read, such as in gateway",
    )


def _properties(name: str, remote: Mapping[str, Any], readers: Sequence[SecretReference]) -> Iterator[Problem]:
    known = sorted({key for reader in readers for key in (*reader.keys, *reader.optional)})
    for key in mapping(remote.get("properties")):
        if key not in known:
            near = nearest(str(key), known)
            yield Problem(
                path=(*_REMOTE, name, "properties", str(key)),
                what="is no key that the Secret's reader knows",
                near=near,
                allowed=", ".join(known),
                fix=f"write {near}" if near else "take it out, or write one of these",
            )


def _itself(name: str, remote: Mapping[str, Any], spaces: Sequence[str], store: Mapping[str, Any]) -> Iterator[Problem]:
    if store and store.get("server") is None and store.get("namespace") in spaces and remote.get("key") == name:
        yield Problem(
            path=(*_REMOTE, name, "key"),
            what="is the Secret itself: it would be filled from its own keys",
            got=f"namespace {shown(store.get('namespace'))}",
            fix="keep the keys in a Secret of another name or namespace",
        )
