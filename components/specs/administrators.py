"""What a site may set about people who look after its cluster, and about the record of what they do."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from floor.spec import MOST_VALUES, Spec

# Before each name and group of the issuer: none of them can be one of Kubernetes' own, such as system:masters.
PREFIX = "oidc:"
# Where API servers find, in their pods, the roots that they trust and what the program gives them.
ROOTS_FOLDER = "/etc/ssl/certs"
SETTINGS_FOLDER = "/etc/kubernetes/inference-platform"


class AdministratorsSpec(Spec):
    """People who use the Kubernetes API by their own login, in three roles by groups of the issuer."""

    issuer: str
    """Address of the OpenID Connect issuer, which control planes must reach; https. Where its CA is private, name the
    CA in `trusted_roots`."""
    client_id: str = Field(default="kubernetes", min_length=1)
    """The cluster's name at the issuer: a public client, without a secret, whose redirect address is
    `http://localhost:8000`."""
    username_claim: str = Field(default="email", min_length=1)
    """Field of a token by which audit and messages name the person, with `oidc:` before it."""
    groups_claim: str = Field(default="groups", min_length=1)
    """Field of a token that lists the person's groups."""
    viewers: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups that read everything but Secrets, roles and logs."""
    operators: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups that also read logs, cordon and drain nodes, and restart pods."""
    admins: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups that do everything, as the administrator of the stack's state does."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Groups by the name of their role, as the API server has them."""
        roles = {"viewer": self.viewers, "operator": self.operators, "admin": self.admins}
        return {role: tuple(PREFIX + group for group in groups) for role, groups in roles.items()}


class AuditSpec(Spec):
    """What API servers record of who changed what: a file on each control plane, and a copy where a site wants one."""

    days: int = Field(default=30, ge=1, le=3650)
    """How long a control plane keeps the record, as far as `most_gib` has room."""
    most_gib: int = Field(default=1, ge=1, le=64)
    """What the record may take of a control plane's EPHEMERAL volume; the oldest part goes first."""
    webhook: str | None = None
    """https address to which each API server sends the record too: a collector that takes a POST of an EventList of
    `audit.k8s.io/v1` as JSON. It must let control planes in by their addresses; where its CA is private, name the CA in
    `trusted_roots`."""
