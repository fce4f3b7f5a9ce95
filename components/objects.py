"""The only way from a builder's dict to a Pulumi resource. Builders never import pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi

from floor.metadata import FIELD_MANAGER

# The SDK's own classes ask for the plugin of their version; ours must ask for the same one.
_PLUGIN_VERSION = version("pulumi-kubernetes")
# The command of an update: a value that was made once stays, even if the text of its command changes.
KEEP = 'printf %s "$PULUMI_COMMAND_STDOUT"'
# What the engine keeps encrypted of an object, in outputs too.
_SECRET_KEYS = {"Secret": ("data", "stringData")}


class KubeObject(pulumi.CustomResource):
    """An object of any kind, under the type token and with the inputs that the SDK's class of the kind would have.

    Importing the SDK's classes takes longer than all else that the program does, and none has a `status` for a custom
    resource: the address of a Gateway could not be exported with it.
    """

    status: pulumi.Output[Any]

    def __init__(
        self, name: str, body: Mapping[str, Any], opts: pulumi.ResourceOptions, *, is_patch: bool = False
    ) -> None:
        kept = _SECRET_KEYS.get(body["kind"], ())
        secrets = {key: pulumi.Output.secret(body[key]) for key in kept if key in body}
        own = pulumi.ResourceOptions(version=_PLUGIN_VERSION, additional_secret_outputs=list(kept))
        super().__init__(
            type_token(body["apiVersion"], body["kind"]) + ("Patch" if is_patch else ""),
            name,
            {**body, **secrets, "status": None},
            pulumi.ResourceOptions.merge(opts, own),
        )


def type_token(api_version: str, kind: str) -> str:
    """The engine's name of a kind, as the SDK writes it: Kubernetes' first API group is called `core`."""
    return f"kubernetes:{api_version if '/' in api_version else f'core/{api_version}'}:{kind}"


def declare(name: str, body: Mapping[str, Any], opts: pulumi.ResourceOptions, *, is_patch: bool = False) -> KubeObject:
    """Declare the object that `body` (wire format, camelCase) describes.

    is_patch: `body` is what the program adds to an object of others.
    """
    return KubeObject(name, owned(body, field_manager()), opts, is_patch=is_patch)


def field_manager() -> str:
    """The manager of the fields that this stack applies."""
    return f"{pulumi.get_project()}-{pulumi.get_stack()}"


def owned(body: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The object with the field manager that applies it: the stack's own one, not a new one for each attempt.

    An `up` that was killed has written objects that its state does not know. The next one applies them as the same
    manager; another manager's share of their fields would stay behind when a field is dropped later. A body that names
    the manager which has made its object keeps it for the same reason.
    """
    meta = body["metadata"]
    annotations = {FIELD_MANAGER: manager, **meta.get("annotations", {})}
    return {**body, "metadata": {**meta, "annotations": annotations}}
