"""The valid parts of an invalid site, so that checks of whole parts run in addition to those of single keys."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from floor.problems import Path
from stacks.site.model import SiteConfig

_MOST_ROUNDS = 20
# In the place of what every site must have and this one has wrong; nothing is checked of these.
_STAND_INS: Mapping[Path, Any] = {
    ("name",): "unnamed",
    ("cluster",): {"kubeconfig": "kubeconfig"},
    ("cluster", "machines", "endpoint"): "https://192.0.2.1:6443",
    ("gateway",): {"port": 80},
    ("models",): {},
    ("tenants",): {},
}


def salvaged(values: Any) -> SiteConfig | None:
    """The site without its wrong and unfinished sections; each is taken out as the smallest part that can be."""
    left = copy.deepcopy(values)
    for _ in range(_MOST_ROUNDS):
        try:
            return SiteConfig.model_validate(left)
        except ValidationError as error:
            wrong = {
                (tuple(str(part) for part in detail["loc"] if part != "[key]"), detail["type"])
                for detail in error.errors()
            }
        for path, kind in sorted(wrong):
            _mend(left, path, missing=kind == "missing")
    return None


def _mend(left: Any, path: Path, *, missing: bool) -> None:
    """Put a placeholder where there is one, or remove the section that needs this key."""
    target = path[:-1] if missing and path not in _STAND_INS else path
    cluster = left.get("cluster") if isinstance(left, dict) else None
    if target == ("cluster",) and isinstance(cluster, dict) and {"kubeconfig", "machines"} <= set(cluster):
        cluster.pop("kubeconfig")
    elif target:
        _put(left, target, _STAND_INS.get(target))


def _put(values: Any, path: Path, value: Any) -> None:
    """Set a value, or take it out with None; a path that is not there is left alone."""
    *parents, last = path
    for key in parents:
        if isinstance(values, list) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        else:
            values = values.get(key) if isinstance(values, dict) else None
    if isinstance(values, dict) and value is None:
        values.pop(last, None)
    elif isinstance(values, dict):
        values[last] = copy.deepcopy(value)
    elif isinstance(values, list) and last.isdecimal() and int(last) < len(values):
        del values[int(last)]
