"""Spells an object as the API server will: so an equal object written in another way shows no difference."""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final

from kubernetes.client import models

from lab.plugins.kubernetes.kinds import is_built_in
from lab.plugins.kubernetes.objects import GroupVersionKind, gvk_of, is_crd, is_secret
from lab.plugins.kubernetes.properties import Tree

_READ_ONLY_METADATA: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)

# Maps of quantities, and single quantities, wherever they occur in a built-in kind.
_QUANTITY_MAPS: Final = frozenset(
    {"requests", "limits", "capacity", "hard", "default", "defaultRequest", "max", "min", "maxLimitRequestRatio"}
    | {"overhead", "podFixed", "allocatable"}
)
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})

# A list or a map, in the words of the client library's models, and what is in it.
_MANY: Final = re.compile(r"(?:List\[|Dict\[str, )(.*)\]")

# Booleans without a third state: false is the same as not set.
_FORGOTTEN_WHEN_FALSE: Final = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "paused", "publishNotReadyAddresses"}
)

_SUFFIXES: Final = {
    **{suffix: Decimal(1024) ** (index + 1) for index, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** (index + 1) for index, suffix in enumerate(("k", "M", "G", "T", "P", "E"))},
}
_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL: Final = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n")


def normalize(obj: Tree) -> Tree:
    """The object in the API server's spelling, without read-only metadata. The argument is not changed."""
    if is_crd(obj):
        result = _without_crd_leftovers(obj)
    elif is_secret(obj):
        result = _with_encoded_data(_canonical(obj))
    elif is_built_in(gvk_of(obj)):
        result = _canonical(known_fields(obj))
    else:
        result = dict(obj)
    meta = result.get("metadata")
    if isinstance(meta, dict):
        result["metadata"] = {key: value for key, value in meta.items() if key not in _READ_ONLY_METADATA}
    return result


def known_fields(obj: Tree) -> Tree:
    """A built-in object without the fields that its kind does not have, and without empty lists and maps.

    The official plugin turns an object into its Go type and back, which drops both.
    """
    result: Tree = _known(obj, _model_of(gvk_of(obj)))
    return result


def _model_of(gvk: GroupVersionKind) -> str:
    """Name of the client library's model; where two groups have a kind of one name, it begins with the group's."""
    version = gvk.version.capitalize()
    names = (f"{version}{gvk.kind}", f"{(gvk.group or 'core').partition('.')[0].capitalize()}{version}{gvk.kind}")
    return next((name for name in names if hasattr(models, name)), "")


def _known(value: Any, model: str) -> Any:
    many = _MANY.fullmatch(model)
    if isinstance(value, list):
        return [_known(item, many[1] if many else "") for item in value]
    if not isinstance(value, dict):
        return value
    if many:
        return {key: _known(item, many[1]) for key, item in value.items()}
    types = _types(model)
    if not types:
        return value
    return {
        key: _known(item, types[key])
        for key, item in value.items()
        if key in types and not (item in ([], {}) and _MANY.fullmatch(types[key]))
    }


@cache
def _types(model: str) -> dict[str, str]:
    """Types of the model's fields, by name; none for what is no model, such as a quantity."""
    fields: Any = getattr(models, model, None)
    return {fields.attribute_map[name]: type_ for name, type_ in fields.openapi_types.items()} if fields else {}


def _without_crd_leftovers(obj: Tree) -> Tree:
    result = {key: value for key, value in obj.items() if key != "status"}
    spec = result.get("spec")
    if isinstance(spec, dict) and spec.get("preserveUnknownFields") is False:
        result["spec"] = {key: value for key, value in spec.items() if key != "preserveUnknownFields"}
    return result


def _with_encoded_data(obj: Tree) -> Tree:
    """The API server folds stringData into data, encoded, and re-encodes what is in data."""
    data = obj.get("data")
    text = obj.get("stringData")
    result = dict(obj)
    if isinstance(data, dict):
        result["data"] = {key: _reencoded(value) for key, value in data.items()}
    if isinstance(text, dict) and text:
        encoded = {
            key: base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
            for key, value in text.items()
        }
        result["data"] = {**(result["data"] if isinstance(result.get("data"), dict) else {}), **encoded}
        del result["stringData"]
    return result


def _reencoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64encode(base64.b64decode("".join(value.split()), validate=True)).decode()
    except binascii.Error:
        # Left as it is: the API server reports what is wrong with it.
        return value


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    result: Tree = {}
    for key, item in value.items():
        if item is None or (item is False and key in _FORGOTTEN_WHEN_FALSE):
            continue
        if key in _QUANTITY_MAPS and isinstance(item, dict):
            result[key] = {name: canonical_quantity(amount) for name, amount in item.items()}
        elif key in _QUANTITIES:
            result[key] = canonical_quantity(item)
        else:
            result[key] = _canonical(item)
    return result


def canonical_quantity(value: Any) -> Any:
    """`1000m` as `1`, `1024Mi` as `1Gi`, 2 as `2`; anything that is no quantity comes back unchanged."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    text = str(value).strip()
    digits = text.rstrip("KMGTPEkinum")
    suffix = text[len(digits) :]
    # 1E6 and 1e3 are exponents, 5E is a suffix.
    if suffix not in _SUFFIXES:
        return value
    try:
        amount = Decimal(digits) * _SUFFIXES[suffix]
    except InvalidOperation:
        return value
    if amount == 0:
        return "0"
    if "e" in digits.lower():
        return value
    if suffix.endswith("i") and abs(amount) >= 1024:
        return _in_units(amount, (*_BINARY, ""))
    return _in_units(amount, _DECIMAL)


def _in_units(amount: Decimal, units: tuple[str, ...]) -> str:
    """The amount in the largest unit that keeps it whole."""
    for unit in units:
        count = amount / _SUFFIXES[unit]
        if count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return f"{int((amount / _SUFFIXES['n']).to_integral_value(rounding='ROUND_UP'))}n"


def prune(live: Tree, shape: Tree) -> Tree:
    """What `live` holds of the fields that `shape` has: what others set is not ours to compare."""
    result: Tree = {}
    for key, wanted in shape.items():
        if key not in live:
            continue
        value = live[key]
        if isinstance(value, dict) and isinstance(wanted, dict):
            result[key] = prune(value, wanted)
        elif isinstance(value, list) and isinstance(wanted, list):
            result[key] = _prune_list(value, wanted)
        else:
            result[key] = value
    return result


def _prune_list(live: list[Any], shape: list[Any]) -> list[Any]:
    result: list[Any] = []
    for value, wanted in zip(live, shape, strict=False):
        if isinstance(value, dict) and isinstance(wanted, dict):
            result.append(prune(value, wanted))
        elif isinstance(value, list) and isinstance(wanted, list):
            result.append(_prune_list(value, wanted))
        else:
            result.append(value)
    return result


def is_zero(value: Any) -> bool:
    """Whether the API server may treat the value as not set: null, false, zero, or empty."""
    return value is None or value is False or value in (0, "", [], {})


def keep_zero_values(pruned: Tree, inputs: Tree) -> Tree:
    """Pruned live inputs plus those zero values of the old inputs that the API server does not repeat."""
    result = dict(pruned)
    for key, given in inputs.items():
        if key not in pruned:
            if is_zero(given):
                result[key] = given
        elif isinstance(pruned[key], dict) and isinstance(given, dict):
            result[key] = keep_zero_values(pruned[key], given)
        elif isinstance(pruned[key], list) and isinstance(given, list):
            result[key] = [
                keep_zero_values(item, old) if isinstance(item, dict) and isinstance(old, dict) else item
                for item, old in zip(pruned[key], given, strict=False)
            ] + pruned[key][len(given) :]
    return result
