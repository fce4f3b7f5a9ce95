"""A container's environment and arguments, resolved from its spec; no side effects."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from lab.runner.state import Object

# Finds a Secret or ConfigMap of the pod's namespace: (kind, name) -> object or None.
Lookup = Callable[[str, str], Object | None]

_KEYED_FIELD = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")
_VARIABLE_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")


class MissingReferenceError(Exception):
    """A Secret, ConfigMap, key or field that the spec names is not there; the container waits for it."""


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """What a pod gets to know about itself only once it is placed."""

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value and $$ by $; an unknown name stays as it is written."""
    result: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character != "$" or not following:
            result.append(character)
            position += 1
        elif following == "$":
            result.append("$")
            position += 2
        elif following == "(" and (end := text.find(")", position)) > 0:
            name = text[position + 2 : end]
            result.append(values.get(name, f"$({name})"))
            position = end + 1
        else:
            result.append(character + following)
            position += 2
    return "".join(result)


def field_value(pod: Object, facts: PodFacts, path: str) -> str:
    """The value of a downward-API field path; a whole label or annotation map as key="value" lines.

    Raises MissingReferenceError for a path that Kubernetes does not offer.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if keyed := _KEYED_FIELD.match(path):
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{_escape(value)}"' for key, value in sorted(entries.items()))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path not in simple:
        raise MissingReferenceError(f"field path {path!r} is not offered to a pod; offered: {', '.join(simple)}")
    return str(simple[path])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(container: Object, facts: PodFacts, resource: str, divisor: str) -> str:
    """A limit or request ("limits.memory") divided by the divisor, rounded up; without one, the node's allocatable."""
    group, _, name = resource.partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(group) or {}).get(name)
    if amount is None and group == "limits":
        amount = facts.allocatable.get(name)
    unit = Decimal(parse_quantity(divisor)) if divisor and divisor != "0" else Decimal(1)
    return str(math.ceil(Decimal(parse_quantity(amount or "0")) / unit))


def service_links(services: Iterable[Object]) -> dict[str, str]:
    """NAME_SERVICE_HOST, NAME_SERVICE_PORT and the docker-link variables of each Service with a cluster address."""
    variables: dict[str, str] = {}
    for service in services:
        address = service["spec"].get("clusterIP")
        ports = service["spec"].get("ports") or []
        if not address or address == "None" or not ports:
            continue
        name = service["metadata"]["name"].upper().replace("-", "_")
        variables[f"{name}_SERVICE_HOST"] = address
        variables[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
        for port in ports:
            if label := port.get("name"):
                variables[f"{name}_SERVICE_PORT_{label.upper().replace('-', '_')}"] = str(port["port"])
        first = ports[0].get("protocol", "TCP").lower()
        variables[f"{name}_PORT"] = f"{first}://{address}:{ports[0]['port']}"
        for port in ports:
            protocol = port.get("protocol", "TCP")
            stem = f"{name}_PORT_{port['port']}_{protocol}"
            variables[stem] = f"{protocol.lower()}://{address}:{port['port']}"
            variables[f"{stem}_PROTO"] = protocol.lower()
            variables[f"{stem}_PORT"] = str(port["port"])
            variables[f"{stem}_ADDR"] = address
    return variables


def container_env(
    pod: Object,
    container: Object,
    facts: PodFacts,
    lookup: Lookup,
    links: Mapping[str, str],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """The environment of one container: defaults < service links < envFrom < env, as the kubelet orders them.

    Raises MissingReferenceError for what the spec names and does not call optional.
    """
    declared: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        declared.update(_from_whole_object(source, lookup))
    for entry in container.get("env") or []:
        value = _entry_value(pod, container, facts, lookup, entry, {**links, **declared})
        if value is not None:
            declared[entry["name"]] = value
    return {**defaults, **links, **declared}


def _entry_value(
    pod: Object, container: Object, facts: PodFacts, lookup: Lookup, entry: Object, known: Mapping[str, str]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value", ""), known)
    if field := source.get("fieldRef"):
        return field_value(pod, facts, field["fieldPath"])
    if resource := source.get("resourceFieldRef"):
        owner = container
        if name := resource.get("containerName"):
            owner = next(c for c in pod["spec"]["containers"] if c["name"] == name)
        return resource_value(owner, facts, resource["resource"], str(resource.get("divisor", "1")))
    for field_name, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if reference := source.get(field_name):
            return _key_of(lookup, kind, reference)
    raise MissingReferenceError(f"variable {entry['name']}: valueFrom {sorted(source)} is not known to the lab")


def _key_of(lookup: Lookup, kind: str, reference: Object) -> str | None:
    optional = bool(reference.get("optional", False))
    obj = lookup(kind, reference["name"])
    if obj is None:
        if optional:
            return None
        raise MissingReferenceError(f'{kind.lower()} "{reference["name"]}" not found')
    data = object_data(obj)
    if reference["key"] not in data:
        if optional:
            return None
        raise MissingReferenceError(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    return data[reference["key"]].decode(errors="replace")


def _from_whole_object(source: Object, lookup: Lookup) -> dict[str, str]:
    kind, reference = (
        ("Secret", source["secretRef"]) if "secretRef" in source else ("ConfigMap", source["configMapRef"])
    )
    obj = lookup(kind, reference["name"])
    if obj is None:
        if reference.get("optional", False):
            return {}
        raise MissingReferenceError(f'{kind.lower()} "{reference["name"]}" not found')
    prefix = source.get("prefix", "")
    return {
        prefix + key: value.decode(errors="replace")
        for key, value in object_data(obj).items()
        if _VARIABLE_NAME.match(prefix + key)
    }


def object_data(obj: Object) -> dict[str, bytes]:
    """Keys and bytes of a Secret or ConfigMap."""
    if "kind" in obj and obj["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    data.update({key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()})
    return data
