"""Which fields of rendered objects follow from a model's proof, and from which of its settings.

`explain` links a field to a setting only if it has that setting's value, so a row of these tables that has
become wrong says nothing instead of something false. A new rendered setting needs a row here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policy.model import Resource
from sitectl.proofs import told
from stacks.plan.site_plan import SitePlan
from stacks.proof.figures import Explanation

# Flags of the engines are called as the settings are, but for these.
_FLAGS = {"kv_cache_size": "kv_blocks"}
_ENVIRONMENT = {"VLLM_ENGINE_READY_TIMEOUT_S": "start_budget_s"}
# Ends of paths below a container.
_FIELDS = {
    "startupProbe.failureThreshold": "startup_probe_failures",
    'resources.limits["nvidia.com/gpu"]': "tensor_parallel_size",
    'resources.requests["nvidia.com/gpu"]': "tensor_parallel_size",
}
# Keys inside of the picker's configuration, which is text.
_CONFIGURATION = {
    "lruCapacityPerServer": "kv_blocks",
    "maxPrefixTokensToMatch": "max_model_len",
    "queueDepthThreshold": "picker_queue_threshold",
    "kvCacheUtilThreshold": "picker_kv_threshold",
}
_PICKER_END = "-epp"


def model_of(resource: Resource, plan: SitePlan) -> str:
    """The model that an object belongs to; empty for what all of them share."""
    meta: Mapping[str, Any] = resource.body.get("metadata") or {}
    labels: Mapping[str, Any] = meta.get("labels") or {}
    named = str(labels.get("app.kubernetes.io/instance") or str(meta.get("name", "")).removesuffix(_PICKER_END))
    return named if named in plan.models else ""


def derivations(resource: Resource, plan: SitePlan, path: str, value: Any) -> list[dict[str, Any]]:
    """Settings behind a field's value, or behind parts of it, each with formula and inputs.

    path: dotted, as `explain` has walked it, such as `spec.template.spec.containers.0.args`. value: what is there.
    """
    model = model_of(resource, plan)
    leaves = list(_leaves(path, value)) if model else []
    if not leaves:
        return []
    known = plan.models[model].settings
    found = []
    for shown, key, text in leaves:
        knob = known.get(key)
        if knob is not None and _same(knob, text):
            words = {name: one for name, one in told(knob).items() if name != "rendered"}
            found.append({"at": shown, **words, "key": f"models.{model}.knobs.{key}"})
    return found


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """(what to show, setting that it may follow from, value as text) of each leaf that a table knows."""
    if isinstance(value, Mapping):
        if value.get("name") in _ENVIRONMENT and "value" in value:
            yield f"{value['name']}={value['value']}", _ENVIRONMENT[str(value["name"])], str(value["value"])
            return
        for key, inner in value.items():
            yield from _leaves(f'{path}["{key}"]' if "." in key else f"{path}.{key}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(f"{path}.{place}", inner)
    elif isinstance(value, str) and value.startswith("--"):
        name, _, text = value.removeprefix("--").partition("=")
        key = name.replace("-", "_")
        yield value, _FLAGS.get(key, key), text or "True"
    elif isinstance(value, str) and "\n" in value:
        for key, text in re.findall(r"^[\s-]*(\w+): (\S+)$", value, re.MULTILINE):
            if key in _CONFIGURATION:
                yield f"{key}: {text}", _CONFIGURATION[key], text
    else:
        for end, key in _FIELDS.items():
            if path.endswith(f".{end}"):
                yield f"{end}: {value}", key, str(value)


def _same(knob: Explanation, text: str) -> bool:
    return str(knob.value) == text
