"""Which fields of rendered objects follow from a model's proof, and from which of its settings.

The registry of settings knows their places. `explain` links a field to a setting only if it has that setting's value,
so a place that has become wrong shows nothing instead of something false.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.model import Resource
from sitectl.change.verdicts.model import own_name, stated_model
from sitectl.offline.proofs import setting_record
from stacks.plan.settings.definition import Setting
from stacks.plan.settings.registry import DEFINITIONS
from stacks.plan.site_plan import SitePlan


def planned_model(resource: Resource, plan: SitePlan) -> str:
    """The name of the revision that an object belongs to; empty for what all of them share."""
    named = stated_model(resource.body) or own_name(resource.body)
    return named if named in plan.named else ""


def _by_place() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Kind of place -> its name -> the settings that may be there."""
    by_kind: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, definition in DEFINITIONS.items():
        by_kind["flag"][key.replace("_", "-")].append(key)
        for place in definition.places:
            by_kind[place.kind][place.name].append(key)
    return by_kind


_PLACES = _by_place()
# A model's pickers and Jobs request CPU and memory too, as the site or the program wants.
_OF_SERVERS_ALONE = "resources."


def derivations(resource: Resource, plan: SitePlan, path: str, value: Any) -> list[dict[str, Any]]:
    """Settings behind a field's value, or behind parts of it, each with formula and inputs.

    path: dotted, as `explain` has walked it, such as `spec.template.spec.containers.0.args`. value: what is there.
    """
    model = planned_model(resource, plan)
    settings = plan.named[model].settings if model else {}
    serves = own_name(resource.body) == model
    records = []
    for shown, keys, text in _leaves(path, value) if model else ():
        if shown.startswith(_OF_SERVERS_ALONE) and not serves:
            continue
        setting = next((settings[key] for key in keys if key in settings and _same(settings[key], text)), None)
        if setting is not None:
            record = {name: part for name, part in setting_record(setting).items() if name != "rendered"}
            records.append({"at": shown, **record, "key": f"models.{model}.settings.{setting.key}"})
    return records


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Sequence[str], str]]:
    """(what to show, settings that it may follow from, value as text) of each leaf that is a place of one."""
    if isinstance(value, Mapping):
        if value.get("name") in _PLACES["variable"] and "value" in value:
            yield f"{value['name']}={value['value']}", _PLACES["variable"][str(value["name"])], str(value["value"])
            return
        for key, inner in value.items():
            yield from _leaves(f'{path}["{key}"]' if "." in key else f"{path}.{key}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(f"{path}.{place}", inner)
    elif isinstance(value, str) and value.startswith("--"):
        name, _, text = value.removeprefix("--").partition("=")
        yield value, _PLACES["flag"].get(name, ()), text or "True"
    elif isinstance(value, str) and "\n" in value:
        for key, text in re.findall(r"^[\s-]*(\w+): (\S+)$", value, re.MULTILINE):
            yield f"{key}: {text}", _PLACES["configuration"].get(key, ()), text
    else:
        for end, keys in _PLACES["field"].items():
            if path.endswith(f".{end}"):
                yield f"{end}: {value}", keys, str(value)


def _same(setting: Setting, text: str) -> bool:
    return text == (f"{setting.value}Gi" if setting.unit == "GiB" else str(setting.value))
