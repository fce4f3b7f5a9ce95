"""Custom resource definitions of one release as a file of the bundle: the same bytes always.

A file is a List in JSON, so kubectl applies it. Fields have no descriptions: these are two thirds of the bytes, and the
engine writes its whole state, definitions included, twice per change of any resource.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from bundle.errors import BundleError


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: a bare `=` is text, as one of the values of an enum is."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:value"]
    for key, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def definitions_file(text: str, source: str) -> str:
    """The file out of YAML text, whatever else is in that; BundleError, which names `source`, where it has none."""
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    # A date that does not exist is a ValueError of Python's own.
    except (yaml.YAMLError, ValueError) as error:
        raise BundleError(f"{source} is not YAML", got=" ".join(str(error).split()), fix=_ANOTHER_SOURCE) from None
    try:
        definitions = {
            str(document["metadata"]["name"]): _bare(document)
            for document in documents
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"
        }
        items = [definitions[name] for name in sorted(definitions)]
        # Kubernetes objects are JSON; anything else here, a date for one, was misread and is a TypeError.
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1, sort_keys=True) + "\n"
    except (AttributeError, KeyError, TypeError):
        raise BundleError(f"{source} holds a CustomResourceDefinition that is not whole", fix=_ANOTHER_SOURCE) from None
    if not definitions:
        raise BundleError(f"{source} holds no CustomResourceDefinition", fix=_ANOTHER_SOURCE)
    return content


_ANOTHER_SOURCE = "take it from its publisher, or correct the address in stacks/facts/versions.yaml"


def _bare(definition: dict[str, Any]) -> dict[str, Any]:
    definition.pop("status", None)
    definition["metadata"].pop("creationTimestamp", None)
    for version in definition["spec"]["versions"]:
        version["schema"] = without_descriptions(version["schema"])
    return definition


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
