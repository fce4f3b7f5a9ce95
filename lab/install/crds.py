"""The CRD bundle: the custom resource definitions of the pinned modules, one file a source, the same bytes always."""

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
REVISION = "crds-1"
SUMS = "SHA256SUMS"

# The charts wrap each CRD in one condition; a bundle holds what is behind it.
_CONDITION = re.compile(r"\{\{-?\s*(if\s[^{}]*|end)\s*-?\}\}")
# Plain scalars that YAML readers in other languages take for a number or a boolean.
_AMBIGUOUS = re.compile(r"[-+.]?\d.*|[yYnN]")


class _Dumper(yaml.CSafeDumper):
    """Safe dumper with block style for long texts and quotes where another reader would see no string."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_crds(sources: Mapping[str, Path], folder: Path) -> None:
    """Write `<source>.yaml` for each folder of CRD files, and SHA256SUMS; LabError when a source is not as expected."""
    for name, source in sorted(sources.items()):
        definitions = {str(crd["metadata"]["name"]): crd for crd in _definitions(source)}
        if not definitions:
            raise LabError(
                f"part crds: {source} holds no CustomResourceDefinition",
                fix="the pinned module moved its CRDs; correct its path in lab/install/parts.py",
            )
        documents = (f"---\n{_dump(definitions[crd])}" for crd in sorted(definitions))
        (folder / f"{name}.yaml").write_text("".join(documents))
    sums = (f"{file_sha256(folder / f'{name}.yaml')}  {name}.yaml\n" for name in sorted(sources))
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
                # Kubernetes objects are JSON; anything else here, a date for one, was misread.
                json.dumps(document)
                yield document


def _dump(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=True, width=120, allow_unicode=True)
