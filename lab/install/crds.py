"""The CRD bundle: the custom resource definitions of the pinned modules, one file per source, the same bytes always.

A file is a List in JSON, so kubectl applies it. Fields have no descriptions: these are two thirds of the bytes, and the
engine writes its whole state, definitions included, twice per change of any resource.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.install.store import file_sha256

# Raise it when the way of writing changes, so that cached bundles are made again.
REVISION = "crds-2"
SUMS = "SHA256SUMS"

# The charts wrap each CRD in one condition; a bundle holds what is behind it.
_CONDITION = re.compile(r"\{\{-?\s*(if\s[^{}]*|end)\s*-?\}\}")


def write_crds(sources: Mapping[str, Path], folder: Path) -> None:
    """Write `<source>.json` for each folder of CRD files, and SHA256SUMS; LabError when a source is not as expected."""
    for name, source in sorted(sources.items()):
        definitions = {str(crd["metadata"]["name"]): crd for crd in _definitions(source)}
        if not definitions:
            raise LabError(
                f"part crds: {source} holds no CustomResourceDefinition",
                fix="the pinned module moved its CRDs; correct its path in lab/install/parts.py",
            )
        items = [definitions[crd] for crd in sorted(definitions)]
        # Kubernetes objects are JSON; anything else here, a date for one, was misread and is a TypeError.
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1, sort_keys=True)
        (folder / f"{name}.json").write_text(text + "\n")
    sums = (f"{file_sha256(folder / f'{name}.json')}  {name}.json\n" for name in sorted(sources))
    (folder / SUMS).write_text("".join(sums))


def _definitions(source: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(source.glob("*.yaml")):
        lines = [line for line in path.read_text().splitlines() if not _CONDITION.fullmatch(line.strip())]
        if unknown := next((line for line in lines if "{{" in line), None):
            raise LabError(
                f"part crds: {path} has a template line that is not known here: {unknown.strip()[:100]}",
                fix="teach lab/install/crds.py what it means before taking this version",
            )
        for document in yaml.load_all("\n".join(lines), Loader=yaml.CSafeLoader):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                document.pop("status", None)
                document["metadata"].pop("creationTimestamp", None)
                for version in document["spec"]["versions"]:
                    version["schema"] = without_descriptions(version["schema"])
                yield document


def without_descriptions(schema: Any) -> Any:
    """An OpenAPI schema without its texts; a field that is named `description` stays."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _below(key, value) for key, value in schema.items() if key != "description"}


def _below(key: str, value: Any) -> Any:
    if key in ("default", "enum"):  # values, not schemas
        return value
    if key == "properties":
        return {name: without_descriptions(field) for name, field in value.items()}
    return without_descriptions(value)
