"""The renderYamlToDirectory mode: objects become files, and no cluster is asked."""

from __future__ import annotations

from pathlib import Path

import yaml

from lab.plugins.kubernetes.objects import is_crd, name_of, namespace_of
from lab.plugins.kubernetes.properties import Tree


def path_of(obj: Tree, directory: str) -> Path:
    """The file of one object: CRDs in a folder that sorts first, names from version, kind, namespace and name."""
    version = str(obj.get("apiVersion")).replace("/", "_").replace(":", "_")
    kind = str(obj.get("kind")).lower()
    folder = "0-crd" if is_crd(obj) else "1-manifest"
    return Path(directory) / folder / f"{version}-{kind}-{namespace_of(obj) or 'default'}-{name_of(obj)}.yaml"


def write(obj: Tree, directory: str) -> Path:
    """Write the object's file, readable by its owner alone since it may hold a secret, and return its path."""
    for folder in ("0-crd", "1-manifest"):
        (Path(directory) / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path_of(obj, directory)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(obj, sort_keys=True, default_flow_style=False))
    return path
