"""yaml/v2 ConfigGroup and ConfigFile: manifests unfolded into child resources, in an order that works."""

from __future__ import annotations

import asyncio
import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi
import yaml

from lab.plugins.kubernetes import VERSION
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.objects import gvk_of, is_crd, metadata, name_of, namespace_of, set_metadata
from lab.plugins.kubernetes.ordering import dependencies, in_order
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import ProviderSession

_GLOB = re.compile(r"(?:^|[^\\])[*?\[]")


class Child(pulumi.CustomResource):
    """One object of a component."""


class Unfolded(pulumi.ComponentResource):
    """A component whose children come from manifests; `resources` lists them."""

    resources: pulumi.Output[Any]

    def __init__(
        self,
        token: str,
        session: ProviderSession,
        name: str,
        inputs: dict[str, Any],
        options: pulumi.ResourceOptions | None,
    ) -> None:
        super().__init__(token, name, None, options)
        self._session = session
        self._name = name
        self.resources = pulumi.Output.from_input(inputs).apply(self._unfold)
        self.register_outputs({"resources": self.resources})

    async def _unfold(self, inputs: dict[str, Any]) -> list[Child]:
        loop = asyncio.get_running_loop()
        # Reading files and running helm must not hold up the children of other components.
        objects = await loop.run_in_executor(None, lambda: self._objects(inputs))
        namespace = self._namespace(inputs) or self._session.default_namespace
        placed = await loop.run_in_executor(None, lambda: placed_objects(objects, namespace, self._session))
        prefix = inputs.get("resourcePrefix")
        return self._register(
            placed,
            prefix=self._name if prefix is None else prefix,
            skip_await=bool(inputs.get("skipAwait")),
        )

    def _objects(self, inputs: dict[str, Any]) -> list[Tree]:
        """The component's objects, lists not yet taken apart."""
        raise NotImplementedError

    def _namespace(self, inputs: dict[str, Any]) -> str:  # noqa: ARG002 - components with a namespace look at theirs
        """Namespace of objects that name none; empty for the provider's."""
        return ""

    def _options(self, obj: Tree) -> pulumi.ResourceOptions:  # noqa: ARG002 - charts look at the object
        """Further options of a child."""
        return pulumi.ResourceOptions()

    def _register(self, objects: Sequence[Tree], *, prefix: str, skip_await: bool) -> list[Child]:
        children: dict[tuple[str, str, str, str], Child] = {}
        needed = dependencies(objects)
        for obj in in_order(objects, needed):
            key = identity(obj)
            options = pulumi.ResourceOptions(
                parent=self, version=VERSION, depends_on=[children[other] for other in needed[key] if other in children]
            )
            children[key] = Child(
                type_token(obj),
                child_name(obj, prefix),
                child_properties(obj, skip_await=skip_await),
                pulumi.ResourceOptions.merge(options, self._options(obj)),
            )
        return list(children.values())


class ConfigGroup(Unfolded):
    """Objects from files (with glob patterns), YAML text and literal objects."""

    def __init__(
        self, session: ProviderSession, name: str, inputs: dict[str, Any], options: pulumi.ResourceOptions | None
    ) -> None:
        super().__init__("kubernetes:yaml/v2:ConfigGroup", session, name, inputs, options)

    def _objects(self, inputs: dict[str, Any]) -> list[Tree]:
        objects = read_files(inputs.get("files") or [], globbing=True)
        objects += parse_documents(inputs.get("yaml") or "", "the yaml input")
        return objects + list(inputs.get("objs") or [])


class ConfigFile(Unfolded):
    """Objects from one file."""

    def __init__(
        self, session: ProviderSession, name: str, inputs: dict[str, Any], options: pulumi.ResourceOptions | None
    ) -> None:
        super().__init__("kubernetes:yaml/v2:ConfigFile", session, name, inputs, options)

    def _objects(self, inputs: dict[str, Any]) -> list[Tree]:
        return read_files([str(inputs.get("file", ""))], globbing=False)


def read_files(files: Sequence[str], *, globbing: bool) -> list[Tree]:
    """Objects of local manifest files, in the files' order. Raises ProviderError for what cannot be read."""
    objects: list[Tree] = []
    for file in files:
        if re.match(r"[a-z][a-z0-9+.-]*://", file):
            raise ProviderError(f"{file}: the lab stand-in reads local files only; fetch the manifest beforehand")
        paths = sorted(glob.glob(file)) if globbing and _GLOB.search(file) else [file]  # noqa: PTH207 - absolute ones too
        for path in paths:
            try:
                text = Path(path).read_text()
            except OSError as error:
                raise ProviderError(f"cannot read manifest {path}: {error.strerror or error}") from error
            objects += parse_documents(text, path)
    return objects


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: dates stay text."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_documents(text: str, source: str) -> list[Tree]:
    """Objects of a YAML text with any number of documents. Raises ProviderError if it is no YAML or no objects."""
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise ProviderError(f"{source} is not YAML: {error}") from error
    for document in documents:
        if document is not None and not isinstance(document, dict):
            raise ProviderError(f"{source} holds a {type(document).__name__} where an object must be")
    return [document for document in documents if document]


def placed_objects(objects: Sequence[Tree], namespace: str, session: ProviderSession) -> list[Tree]:
    """Objects with lists taken apart and namespaces filled in. Raises ProviderError on an object without identity."""
    flat = _without_lists(objects)
    for obj in flat:
        if is_crd(obj):
            session.declare(obj)
    for obj in flat:
        gvk = gvk_of(obj)
        if not gvk.kind or not gvk.version:
            raise ProviderError(f"an object lacks its kind or apiVersion: {str(obj)[:100]}")
        if not name_of(obj):
            raise ProviderError(f"an object lacks its metadata.name: {str(obj)[:100]}")
        obj["apiVersion"] = gvk.api_version
        if not namespace_of(obj) and session.scope(gvk):
            set_metadata(obj, "namespace", namespace)
    return flat


def _without_lists(objects: Sequence[Tree]) -> list[Tree]:
    flat: list[Tree] = []
    for obj in objects:
        if isinstance(obj.get("items"), list) and str(obj.get("kind", "")).endswith("List"):
            flat += _without_lists(obj["items"])
        else:
            flat.append(obj)
    return flat


def identity(obj: Tree) -> tuple[str, str, str, str]:
    """Group, kind, namespace and name."""
    gvk = gvk_of(obj)
    return gvk.group, gvk.kind, namespace_of(obj), name_of(obj)


def type_token(obj: Tree) -> str:
    """The resource type of an object."""
    gvk = gvk_of(obj)
    return f"kubernetes:{gvk.group or 'core'}/{gvk.version}:{gvk.kind}"


def child_name(obj: Tree, prefix: str) -> str:
    """The resource name of an object: `prefix:namespace/name`."""
    name = f"{namespace_of(obj)}/{name_of(obj)}" if namespace_of(obj) else name_of(obj)
    return f"{prefix}:{name}" if prefix else name


def child_properties(obj: Tree, *, skip_await: bool) -> dict[str, Any]:
    """An object as resource inputs; the data of a Secret is secret."""
    properties = dict(obj)
    if skip_await:
        meta = dict(metadata(obj))
        meta["annotations"] = {**(meta.get("annotations") or {}), "pulumi.com/skipAwait": "true"}
        properties["metadata"] = meta
    if gvk_of(obj).kind == "Secret" and obj.get("apiVersion") == "v1":
        for key in ("data", "stringData"):
            if key in properties:
                properties[key] = pulumi.Output.secret(properties[key])
    return properties
