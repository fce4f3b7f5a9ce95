"""How alerts and dashboards lead to runbooks: by the command that prints one, or where the site publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMMAND = "sitectl docs "


def command(page: str) -> str:
    """What prints a runbook in a checkout, by the name of its file without the ending."""
    return f"{_COMMAND}{page}"


def with_addresses(rule: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The PrometheusRule, in which each alert has the address of its runbook too. folder: where the site has them."""
    groups = [
        {**group, "rules": [_with_address(entry, folder) for entry in group["rules"]]}
        for group in rule["spec"]["groups"]
    ]
    return {**rule, "spec": {**rule["spec"], "groups": groups}}


def _with_address(rule: Mapping[str, Any], folder: str) -> dict[str, Any]:
    if "alert" not in rule:
        return dict(rule)
    page = rule["annotations"]["runbook"].removeprefix(_COMMAND)
    return {**rule, "annotations": {**rule["annotations"], "runbook_url": f"{folder.rstrip('/')}/{page}.md"}}
