"""What programs are answered, so that /openapi.json describes it and a client that is made of that has types."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from services.portal.catalogue import OfferedModel, OrderableModel


class _Shown(BaseModel):
    # What a newer directory adds is left out.
    model_config = ConfigDict(extra="ignore")


class ShownModels(_Shown):
    """What a site serves, and what it would serve."""

    site: str
    models: dict[str, OfferedModel]
    orderable: dict[str, OrderableModel]


class ShownTenant(_Shown):
    """Your role in a team (user, admin or operator), its models, and its limits and budgets."""

    role: str
    models: list[str]
    limits: dict[str, int]
    budgets: dict[str, float]


class ShownTenants(_Shown):
    """Your teams by name."""

    tenants: dict[str, ShownTenant]


class ShownKey(_Shown):
    """A key without its text. Times are seconds of Unix time; state: works, expired or revoked."""

    id: str
    tenant: str
    name: str
    models: list[str] | None
    created: int
    expires: int | None
    state: str
    suspended: int | None = None
    """Since when it is refused, whatever its state."""
    is_own: bool = True


class ShownKeys(_Shown):
    """Those that work first."""

    keys: list[ShownKey]


class MadeKey(ShownKey):
    """A key that was just made. `key` is its text, which is in this answer and nowhere else."""

    key: str
    endpoint: str
    state: str = "works"


class ShownOrder(_Shown):
    """An order of a model; state: asked, proposed, served or declined. `why`: the proposal, or why it is declined."""

    id: str
    tenant: str
    model: str
    note: str
    state: str
    why: str
    asked_by: str
    asked: int
    changed: int


class ShownOrders(_Shown):
    """The open ones first."""

    orders: list[ShownOrder]


class ShownPrompt(_Shown):
    """A version of a prompt. `text` is there where one prompt was asked for."""

    tenant: str
    id: str
    version: int
    in_use: bool
    variables: list[str]
    at: int
    actor: str
    text: str | None = None


class ShownPrompts(_Shown):
    """Versions by id and number."""

    versions: list[ShownPrompt]


class ShownReason(_Shown):
    """A code for programs, and sentences for people."""

    code: str
    message: str


class ShownFailure(_Shown):
    """Why a request is refused."""

    error: ShownReason
