"""Functions that a program can call: decoding YAML and rendering a chart."""

from __future__ import annotations

from typing import Any

from lab.plugins.kubernetes.charts import render
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import ProviderSession
from lab.plugins.kubernetes.yaml_components import parse_documents, placed_objects


def invoke(session: ProviderSession, function: str, arguments: Tree) -> Tree:
    """Answer a function call. Raises ProviderError for functions that are not covered."""
    if function == "kubernetes:yaml:decode":
        namespace = str(arguments.get("defaultNamespace") or session.default_namespace)
        objects = parse_documents(str(arguments.get("text") or ""), "the text")
        return {"result": placed_objects(objects, namespace, session)}
    if function == "kubernetes:helm:template":
        options: dict[str, Any] = arguments.get("jsonOpts") or arguments
        return {"result": render(session, str(options.get("releaseName") or options.get("name") or "release"), options)}
    raise ProviderError(f'unknown function "{function}": the lab stand-in covers yaml:decode and helm:template')
