"""Rendered manifests in a folder: one file per object, names and order that are the same from run to run, no secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from floor.reading.files import UnreadableError, text_of
from policy.model import Resource
from sitectl.shell import whole_files
from sitectl.shell.errors import Exit, SitectlError

MARK = ".rendered-by-sitectl"
# In the mark while files are written: such a folder is not read, and may be written again.
_UNFINISHED = "unfinished\n"
# Below a site's folder; files of resources are one folder deep.
_MACHINES = "program/machines"
_TO_READ = "# {}, with every secret masked: to read and compare, not to apply.\n"
_FIRST = ("apiVersion", "kind", "metadata", "type", "name", "spec")
# What a rendered object records in addition to its own fields; annotations, so that it stays an object of its kind.
_NOT_RENDERED = "inference-platform/values-not-rendered"
_OPTIONS = "inference-platform/pulumi-options"
# Field managers are the stack's name once more, in every object.
_NOISE = ("pulumi.com/patchFieldManager",)


class _ManifestDumper(yaml.CSafeDumper):
    """Long texts as blocks, so that a changed line shows as one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's form
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ManifestDumper.add_representer(str, _text)


def file_name(resource: Resource) -> str:
    """Path of a resource below its site's folder; unique, because type and logical name are."""
    if not resource.kind:
        return f"program/{_plain(resource.type)}.{_plain(resource.name)}.yaml"
    group = str(resource.body.get("apiVersion", "")).rpartition("/")[0]
    own = str((resource.body.get("metadata") or {}).get("name") or resource.name)
    kind = f"{resource.kind.lower()}.{group}" if group else resource.kind.lower()
    return f"{_plain(resource.namespace) or 'cluster'}/{_plain(kind)}_{_plain(own)}.yaml"


def redacted(resource: Resource) -> dict[str, Any]:
    """The body without any value of a Secret, also those that the program forgot to mark.

    The values are left out and not replaced: an applied placeholder would be a valid key.
    """
    body = dict(resource.body)
    if not isinstance(body.get("metadata"), Mapping):
        return body
    meta = dict(body["metadata"])
    notes = {key: value for key, value in (meta.pop("annotations", None) or {}).items() if key not in _NOISE}
    if resource.kind == "Secret":
        held = [section for section in ("data", "stringData") if section in body]
        if held:
            notes[_NOT_RENDERED] = _kept_back({section: body.pop(section) for section in held})
    body["metadata"] = {**meta, "annotations": notes} if notes else meta
    return body


def _kept_back(sections: Mapping[str, Any]) -> str:
    left_out = []
    for section, values in sections.items():
        names = ", ".join(sorted(values)) if isinstance(values, Mapping) else ""
        left_out.append(f"{section} ({names})" if names else section)
    return f"{', '.join(left_out)}: `pulumi up` makes the values and keeps them in its encrypted state"


def rendered(resource: Resource) -> str:
    """YAML of one resource: first keys first, the rest by name."""
    body = redacted(resource)
    options = [
        name for name, holds in (("protect", resource.protected), ("retainOnDelete", resource.retained)) if holds
    ]
    if not resource.kind:
        body = {"type": resource.type, "name": resource.name, "inputs": body} | (
            {"options": options} if options else {}
        )
    elif options:
        meta = body["metadata"]
        body["metadata"] = {**meta, "annotations": {**meta.get("annotations", {}), _OPTIONS: ", ".join(options)}}
    return yaml.dump(_ordered(body), Dumper=_ManifestDumper, sort_keys=False, width=120, allow_unicode=True)


def contents(resources: Iterable[Resource]) -> dict[str, str]:
    """File name -> text of every resource. Raises SitectlError when two resources would be one file."""
    files: dict[str, str] = {}
    for resource in sorted(resources, key=lambda item: (file_name(item), item.name)):
        name = file_name(resource)
        if name in files:
            raise SitectlError(
                f"two resources are the same object: {resource.label}",
                fix="give one of them another name; the cluster can hold only one",
                status=Exit.REFUSED,
            )
        files[name] = rendered(resource)
    return files


def machine_contents(machines: Mapping[str, Mapping[str, Any]] | None) -> dict[str, str]:
    """File name -> text of each machine's config, and of its keys as all levels of the site set them together."""
    files = {}
    for name, shown in sorted((machines or {}).items()):
        for part, title in (("documents", f"Config of {name}"), ("keys", f"Keys of {name}")):
            documents = shown[part] if part == "documents" else [shown[part]]
            text = yaml.dump_all(
                documents, Dumper=_ManifestDumper, sort_keys=part == "keys", width=120, allow_unicode=True
            )
            suffix = "" if part == "documents" else ".keys"
            files[f"{_MACHINES}/{_plain(name)}{suffix}.yaml"] = f"{_TO_READ.format(title)}{text}"
    return files


def read_machines(folder: Path) -> dict[str, dict[str, Any]] | None:
    """The machines of a rendered folder; None where there are none, or not shown. Raises SitectlError as `read`."""
    machines = {}
    for keys in sorted((folder / _MACHINES).glob("*.keys.yaml")):
        name = keys.name.removesuffix(".keys.yaml")
        config = keys.with_name(f"{name}.yaml")
        try:
            documents = list(yaml.safe_load_all(text_of(config)))
            shown = {"keys": yaml.safe_load(text_of(keys)), "documents": documents}
            if not all(isinstance(part, dict) for part in (shown["keys"], *documents)):
                raise ValueError(name)
        except (yaml.YAMLError, UnreadableError, OSError, RecursionError, ValueError):
            raise SitectlError(f"{config} is no rendered machine config", fix="render the folder again") from None
        machines[name] = shown
    return machines or None


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` hold exactly these files. Refuses a folder with files that this command did not write."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise SitectlError(f"{nearest} is a file", fix="name a folder with --out", status=Exit.USAGE)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SitectlError(
            f"{folder} holds files that were not rendered",
            fix="name an empty folder, or a folder of an earlier render",
            status=Exit.USAGE,
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / MARK
    whole_files.write(mark, _UNFINISHED)
    for old in sorted(folder.rglob("*.yaml")):
        if old.is_file() and str(old.relative_to(folder)) not in files:
            old.unlink()
    for parent in {(folder / name).parent for name in files}:
        parent.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        whole_files.write_unfinished(folder / name, text)
    whole_files.write(mark, "Written by `python -m sitectl render --out DIR`; changed files are overwritten.\n")


def read(folder: Path) -> list[Resource]:
    """The resources of a rendered folder. Raises SitectlError when it is none."""
    if not (folder / MARK).exists():
        raise SitectlError(
            f"{folder} is no rendered folder", fix=f"python -m sitectl render SITE --out {folder}", status=Exit.USAGE
        )
    if (folder / MARK).read_text() == _UNFINISHED:
        raise SitectlError(
            f"{folder} is half of a rendered folder: its render was cut short",
            fix=f"python -m sitectl render {folder.name} --out {folder.parent}",
        )
    resources = []
    for path in sorted(path for path in folder.rglob("*.yaml") if path.is_file()):
        if path.parent == folder / _MACHINES:
            continue
        try:
            resources.append(_resource(yaml.safe_load(text_of(path))))
        except (yaml.YAMLError, UnreadableError, KeyError, TypeError, AttributeError, RecursionError, ValueError):
            raise SitectlError(f"{path} is no rendered manifest", fix="render the folder again") from None
    return resources


def _resource(body: dict[str, Any]) -> Resource:
    if "inputs" in body:
        options = body.get("options", [])
        type_, name, body = body["type"], body["name"], body["inputs"]
    else:
        meta = body["metadata"]
        options = meta.get("annotations", {}).pop(_OPTIONS, "").split(", ")
        if not meta.get("annotations", True):
            del meta["annotations"]
        version = body["apiVersion"] if "/" in body["apiVersion"] else f"core/{body['apiVersion']}"
        type_, name = f"kubernetes:{version}:{body['kind']}", str(meta["name"])
    return Resource(
        type=type_, name=name, body=body, protected="protect" in options, retained="retainOnDelete" in options
    )


def _ordered(value: Any, *, top: bool = True) -> Any:
    # A site has a hundred thousand values, and most are texts.
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        keys = sorted(value, key=str)
        if top:
            keys.sort(key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
        return {key: _ordered(value[key], top=False) for key in keys}
    if isinstance(value, Sequence):
        return [_ordered(inner, top=False) for inner in value]
    return value


def _plain(name: str) -> str:
    # No separator, and no dot at the start: a name must not lead to another folder.
    return re.sub(r"^\.+", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", name))
