"""Kubernetes objects as plain dicts: identity, annotations, resource ids and the state that the engine keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lab.plugins.kubernetes.properties import Secret, Tree, mark_secrets, plain, secret_texts

INITIAL_API_VERSION: Final = "__initialApiVersion"
FIELD_MANAGER: Final = "__fieldManager"
INPUTS: Final = "__inputs"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

SKIP_AWAIT: Final = "pulumi.com/skipAwait"
WAIT_FOR: Final = "pulumi.com/waitFor"
TIMEOUT_SECONDS: Final = "pulumi.com/timeoutSeconds"
REPLACE_UNREADY: Final = "pulumi.com/replaceUnready"
AUTONAMED: Final = "pulumi.com/autonamed"
PATCH_FORCE: Final = "pulumi.com/patchForce"
PATCH_FIELD_MANAGER: Final = "pulumi.com/patchFieldManager"
DELETION_PROPAGATION: Final = "pulumi.com/deletionPropagationPolicy"

# JSON schema keywords that no SDK can spell with dashes; the state keeps the underscored form.
_TO_DASHED: Final = {
    name.replace("-", "_"): name
    for name in (
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    )
}
_TO_UNDERSCORED: Final = {dashed: underscored for underscored, dashed in _TO_DASHED.items()}


@dataclass(frozen=True)
class GroupVersionKind:
    """What kind of object: `group` is empty for the core group."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


def gvk_of(obj: Tree) -> GroupVersionKind:
    """Kind of an object, from its apiVersion and kind; the group may be spelt `core`."""
    api_version = obj.get("apiVersion")
    kind = obj.get("kind")
    group, _, version = (api_version if isinstance(api_version, str) else "").rpartition("/")
    return GroupVersionKind("" if group == "core" else group, version, kind if isinstance(kind, str) else "")


def urn_type(urn: str) -> str:
    """The resource's own type token of a URN, without its parents."""
    return urn.split("::", 3)[2].rpartition("$")[2]


def urn_name(urn: str) -> str:
    """The resource's name of a URN."""
    return urn.split("::", 3)[3]


def gvk_of_type(token: str) -> GroupVersionKind:
    """Kind named by a type token such as `kubernetes:apps/v1:Deployment`.

    Raises ValueError if the token's module is not group/version.
    """
    package, _, rest = token.partition(":")
    module, _, kind = rest.rpartition(":")
    if package != "kubernetes":
        raise ValueError(f'"{token}" is not of this provider: its types begin with "kubernetes:"')
    if module.count("/") > 1 or not kind:
        raise ValueError(f'"{token}" is not of the form kubernetes:GROUP/VERSION:KIND')
    group, _, version = module.rpartition("/")
    return GroupVersionKind("" if group == "core" else group, version, kind)


def metadata(obj: Tree) -> Tree:
    """The object's metadata, or an empty dict if it is missing, null or unknown."""
    fields = obj.get("metadata")
    return fields if isinstance(fields, dict) else {}


def name_of(obj: Tree) -> str:
    name = metadata(obj).get("name")
    return name if isinstance(name, str) else ""


def namespace_of(obj: Tree) -> str:
    namespace = metadata(obj).get("namespace")
    return namespace if isinstance(namespace, str) else ""


def annotation(obj: Tree, key: str) -> str:
    """The annotation's text, or an empty string."""
    annotations = metadata(obj).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""


def annotated_true(obj: Tree, key: str) -> bool:
    return annotation(obj, key) == "true"


def set_metadata(obj: Tree, key: str, value: str) -> None:
    """Set name or namespace; an empty value removes the key."""
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        return
    if value:
        meta[key] = value
    else:
        meta.pop(key, None)


def set_annotation(obj: Tree, key: str, value: str) -> None:
    """Set an annotation, unless the metadata or its annotations are unknown yet."""
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        return
    annotations = meta.get("annotations")
    if annotations is None:
        annotations = meta["annotations"] = {}
    if isinstance(annotations, dict):
        annotations[key] = value


def object_id(obj: Tree) -> str:
    """The resource id that the engine keeps: `namespace/name`, or `name` for cluster-scoped objects."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def split_id(resource_id: str) -> tuple[str, str]:
    """Namespace (maybe empty) and name of a resource id."""
    namespace, slash, name = resource_id.partition("/")
    return (namespace, name.partition("/")[0]) if slash else ("", namespace)


def is_crd(obj: Tree) -> bool:
    return obj.get("kind") == "CustomResourceDefinition" and str(obj.get("apiVersion", "")).startswith(
        "apiextensions.k8s.io/"
    )


def is_secret(obj: Tree) -> bool:
    return obj.get("kind") == "Secret" and obj.get("apiVersion") == "v1"


def is_config_map(obj: Tree) -> bool:
    return obj.get("kind") == "ConfigMap" and obj.get("apiVersion") == "v1"


def to_object(properties: Tree) -> Tree:
    """Properties as the API server expects them: no secret marks, dashed schema keywords."""
    result: Tree = _rename_keys(plain(properties), _TO_DASHED)
    return result


def _rename_keys(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _rename_keys(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_rename_keys(item, names) for item in value]
    return value


def checkpoint(inputs: Tree, live: Tree, given: Tree, *, initial_api_version: str, field_manager: str) -> Tree:
    """What the engine keeps: the live object, its inputs, and who applies it. `given` marks what is secret."""
    state: Tree = _rename_keys(live, _TO_UNDERSCORED)
    kept: Tree = _rename_keys(inputs, _TO_UNDERSCORED)
    mark_secrets(state, given)
    mark_secrets(kept, given)
    state[INPUTS] = kept
    state[INITIAL_API_VERSION] = initial_api_version
    state[FIELD_MANAGER] = field_manager
    return state


def secrets_of(properties: Tree) -> frozenset[str]:
    """Secret texts of inputs or of kept outputs, for keeping them out of messages."""
    kept = properties.get(INPUTS)
    # A Release keeps its inputs secret as a whole; its name and namespace are still not secret.
    return secret_texts({**properties, INPUTS: kept.value} if isinstance(kept, Secret) else properties)


def inputs_to_properties(obj: Tree, given: Tree) -> Tree:
    """An object as resource inputs, with the secrets of `given` marked."""
    result: Tree = _rename_keys(obj, _TO_UNDERSCORED)
    mark_secrets(result, given)
    return result


def read_checkpoint(state: Tree) -> tuple[Tree, Tree]:
    """Inputs and live object out of kept outputs; the live object still carries the two bookkeeping keys."""
    live = to_object(state)
    # Providers before 0.20 kept both side by side.
    if isinstance(live.get("inputs"), dict) and isinstance(live.get("live"), dict):
        return live["inputs"], live["live"]
    inputs = live.pop(INPUTS, None)
    return (inputs if isinstance(inputs, dict) else {}), live


def text_property(state: Tree, key: str) -> str:
    """A bookkeeping text of the kept outputs, or an empty string."""
    value = plain(state.get(key))
    return value if isinstance(value, str) else ""
