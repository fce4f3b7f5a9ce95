"""What can go wrong with an object on its way to and in the cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException

from lab.plugins.kubernetes.properties import Tree


class ProviderError(Exception):
    """An operation that failed with a message for the user; nothing was created or the state is unchanged."""


class CancelledError(ProviderError):
    """The engine asked the provider to stop."""


class KindNotFoundError(ProviderError):
    """The API server does not serve this kind (yet)."""


class UnreachableError(ProviderError):
    """The API server did not answer, or only with passing errors, until the retries ran out."""


@dataclass
class ApiError(Exception):
    """A refusal of the API server: HTTP status, and its Status object's words."""

    status: int
    reason: str
    message: str
    details: Tree = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, error: ApiException) -> ApiError:
        try:
            body = json.loads(error.body or "")
        except ValueError:
            body = {}
        if not isinstance(body, dict):
            body = {}
        text = body.get("message") or (error.body if isinstance(error.body, str) else "") or str(error.reason)
        return cls(error.status or 0, str(body.get("reason") or error.reason), text, body.get("details") or {})

    @property
    def causes(self) -> list[Tree]:
        causes: Any = self.details.get("causes")
        return causes if isinstance(causes, list) else []

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def namespace_missing(self) -> bool:
        return self.not_found and self.details.get("kind") == "namespaces"

    @property
    def field_conflict(self) -> bool:
        return self.status == 409 and any(cause.get("reason") == "FieldManagerConflict" for cause in self.causes)

    @property
    def immutable_field(self) -> bool:
        """Whether the provider takes it for a field that only a replacement changes.

        By these words alone, as the official one: for claims, volumes, StatefulSets, the addresses of Services and the
        roles of bindings the API server has others.
        """
        return self.status == 422 and "field is immutable" in self.message

    @property
    def policy_unready(self) -> bool:
        """Whether an admission policy refuses everything until the API server knows the kind of its parameters.

        An API server that has just started asks for kinds every 30 s.
        """
        return "failed to find resource referenced by paramKind" in self.message


class PartialError(Exception):
    """The object exists, but the operation did not complete: `live` is its last known state."""

    def __init__(self, message: str, live: Tree, reasons: list[str] | None = None) -> None:
        super().__init__(message)
        self.live = live
        self.reasons = reasons or []


_APPLY_GUIDE = (
    "https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources"
)


def conflict_text(error: ApiError, manager: str) -> str:
    """A field conflict of server-side apply, with who holds which field and how to go on."""
    lines = [
        f'field conflict of server-side apply: field manager "{manager}" does not own what it would change',
        f"  {error.message}",
    ]
    lines += [f"  - {cause.get('field')}: {cause.get('message')}" for cause in error.causes]
    lines.append(
        "  fix: leave these fields out, ignore them with the ignoreChanges option, or take them over with the "
        'annotation pulumi.com/patchForce: "true"; more: ' + _APPLY_GUIDE
    )
    return "\n".join(lines)
