"""Folders behind a pod's volumes: what belongs in them (pure), and how they are written (as the kubelet does)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.runner.env import Lookup, MissingReferenceError, PodFacts, field_value, object_data, resource_value
from lab.runner.state import Object


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of a volume."""

    content: bytes
    mode: int


# Files of a volume by their path in it.
Payload = dict[str, Entry]
# (audience, lifetime in seconds) -> token
Tokens = Mapping[tuple[str, int], str]

# Volume kinds whose files come out of the API; their folders are rewritten when the source changes.
CONTENT_KINDS = ("secret", "configMap", "downwardAPI", "projected")
_DEFAULT_MODE = 0o644
_DEFAULT_TOKEN_LIFETIME_S = 3600


def kind_of(volume: Object) -> str:
    """The volume's source, such as secret or emptyDir."""
    kinds = [key for key in volume if key != "name"]
    return kinds[0] if kinds else "emptyDir"


def token_requests(volume: Object) -> list[tuple[str, int]]:
    """The (audience, lifetime in seconds) of every service-account token that a projected volume asks for."""
    return [
        _token_key(source["serviceAccountToken"])
        for source in volume.get("projected", {}).get("sources") or []
        if "serviceAccountToken" in source
    ]


def _token_key(source: Object) -> tuple[str, int]:
    return str(source.get("audience", "")), int(source.get("expirationSeconds", _DEFAULT_TOKEN_LIFETIME_S))


def payload(pod: Object, volume: Object, facts: PodFacts, lookup: Lookup, tokens: Tokens) -> Payload:
    """The files of a Secret, ConfigMap, downwardAPI or projected volume.

    Raises MissingReferenceError for a source that is not there and not optional.
    """
    kind = kind_of(volume)
    source = volume[kind]
    mode = int(source.get("defaultMode", _DEFAULT_MODE))
    if kind == "secret":
        return _from_object("Secret", {**source, "name": source["secretName"]}, lookup, mode)
    if kind == "configMap":
        return _from_object("ConfigMap", source, lookup, mode)
    if kind == "downwardAPI":
        return _from_fields(pod, source.get("items") or [], facts, mode)
    files: Payload = {}
    for part in source.get("sources") or []:
        if secret := part.get("secret"):
            files.update(_from_object("Secret", secret, lookup, mode))
        if config_map := part.get("configMap"):
            files.update(_from_object("ConfigMap", config_map, lookup, mode))
        if downward := part.get("downwardAPI"):
            files.update(_from_fields(pod, downward.get("items") or [], facts, mode))
        if token := part.get("serviceAccountToken"):
            owned = (pod["spec"].get("securityContext") or {}).get("fsGroup") is not None
            files[token["path"]] = Entry(content=tokens[_token_key(token)].encode(), mode=0o600 if owned else mode)
    return files


def _from_object(kind: str, source: Object, lookup: Lookup, mode: int) -> Payload:
    optional = bool(source.get("optional", False))
    obj = lookup(kind, source["name"])
    if obj is None:
        if optional:
            return {}
        raise MissingReferenceError(f'{kind.lower()} "{source["name"]}" not found')
    data = object_data(obj)
    items = source.get("items")
    if not items:
        return {key: Entry(content=value, mode=mode) for key, value in data.items()}
    files: Payload = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = Entry(content=data[item["key"]], mode=int(item.get("mode", mode)))
        elif not optional:
            raise MissingReferenceError(f'{kind.lower()} "{source["name"]}" has no key {item["key"]}')
    return files


def _from_fields(pod: Object, items: list[Object], facts: PodFacts, mode: int) -> Payload:
    files: Payload = {}
    for item in items:
        if field := item.get("fieldRef"):
            text = field_value(pod, facts, field["fieldPath"])
        else:
            reference = item["resourceFieldRef"]
            owner = next(c for c in pod["spec"]["containers"] if c["name"] == reference["containerName"])
            text = resource_value(owner, facts, reference["resource"], str(reference.get("divisor", "1")))
        files[item["path"]] = Entry(content=text.encode(), mode=int(item.get("mode", mode)))
    return files


@dataclass(frozen=True, kw_only=True)
class Owner:
    """To whom a volume's files belong: the group is the pod's fsGroup."""

    gid: int | None = None


def write_payload(folder: Path, files: Payload, owner: Owner) -> bool:
    """Bring the folder to these files in one step, through the `..data` link; False when nothing changed.

    A reader sees either all old or all new files, as with the kubelet.
    """
    if owner.gid is not None:
        # The group that the pod asked for must be able to read, whatever the mode is.
        files = {path: Entry(content=entry.content, mode=entry.mode | 0o440) for path, entry in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / "..data"
    if current.is_symlink() and _read_back(current) == files:
        return False
    version = folder / f"..{time.time_ns()}"
    version.mkdir(mode=0o755)
    for path, entry in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.content)
        if owner.gid is not None:
            os.chown(target, -1, owner.gid)
        target.chmod(entry.mode)
    old = Path(os.readlink(current)).name if current.is_symlink() else ""  # noqa: PTH115
    pending = folder / "..data_tmp"
    pending.unlink(missing_ok=True)
    pending.symlink_to(version.name)
    pending.rename(current)
    wanted = {Path(path).parts[0] for path in files}
    for name in wanted:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in wanted:
            link.unlink()
    if old:
        shutil.rmtree(folder / old, ignore_errors=True)
    return True


def _read_back(folder: Path) -> Payload:
    root = folder.resolve()
    return {
        str(path.relative_to(root)): Entry(content=path.read_bytes(), mode=path.stat().st_mode & 0o7777)
        for path in root.rglob("*")
        if path.is_file()
    }


def make_empty_dir(folder: Path, owner: Owner) -> None:
    """A fresh emptyDir that every user of the pod may write to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if owner.gid is not None:
        os.chown(folder, -1, owner.gid)
    folder.chmod(0o2777 if owner.gid is not None else 0o777)
