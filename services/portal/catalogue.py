"""What the site offers to whom: one JSON file that the platform's program writes, read again when it changes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from services.portal.failure import PortalError

log = logging.getLogger(__name__)


class _Entry(BaseModel):
    # A newer program may write more than this portal reads.
    model_config = ConfigDict(extra="ignore", frozen=True)


class ShownProof(_Entry):
    """What one site's proof of a model promises, at its highest concurrency."""

    ttft_p95_s: float
    itl_p95_ms: float | None = None
    parallel: int
    tokens_per_minute: int
    fidelity: Literal["measured", "calibrated", "published", "estimated"] | str
    """measured: with times of the site's own replicas. calibrated: with published times of such hardware."""

    @property
    def tokens_per_second(self) -> int | None:
        """Of one answer, at the 95th percentile."""
        return round(1000 / self.itl_p95_ms) if self.itl_p95_ms else None


class ShownPrice(_Entry):
    """Per million tokens, from a moment on."""

    since: int = 0
    """Seconds of Unix time."""
    currency: str
    input: float
    cached_input: float
    output: float


class OfferedModel(_Entry):
    """A model that the site serves."""

    title: str
    task: str
    context_tokens: int
    revision: str
    replicas: int
    gpus: int
    proof: ShownProof | None = None
    prices: list[ShownPrice] = []
    """The newest last; each holds until the next one does."""
    served_until: str | None = None
    """The last day on which tenants may count on this checkpoint under this name."""

    @property
    def price(self) -> ShownPrice | None:
        """The one that holds now."""
        return next((price for price in reversed(self.prices) if price.since <= time.time()), None)

    @property
    def can_chat(self) -> bool:
        """Whether it answers a prompt with text."""
        return self.task in ("chat", "generate")


class OrderableModel(OfferedModel):
    """A model that the site does not serve, and its proof beside those that it serves."""

    revision: str = ""
    replicas: int = 0
    gpus: int = 0
    """0 where it does not fit."""
    verdict: Literal["holds", "uncertain", "fails"] | str
    reasons: list[str] = []
    """Why it fails."""
    weights_gb: float | None = None
    ready_s: int = 0
    """From the `up` of its change to its first answer."""
    latest_s: int = 0
    """Then the platform gives a start up."""
    cost_per_hour: float | None = None
    currency: str | None = None
    change: str = ""
    """What an order adds to the site's file, YAML."""

    @property
    def fits(self) -> bool:
        """Whether the site would take it."""
        return self.verdict != "fails"


class TenantEntry(_Entry):
    """A team: its models, and the groups of the issuer whose people are in it."""

    models: list[str] = []
    admins: list[str] = []
    users: list[str] = []
    limits: dict[str, int] = {}
    budgets: dict[str, float] = {}
    """Limits of a calendar month: `tokens_per_month`, and `spend_per_month` in the ledger's currency."""


class Catalogue(_Entry):
    """The whole file."""

    site: str
    models: dict[str, OfferedModel] = {}
    orderable: dict[str, OrderableModel] = {}
    tenants: dict[str, TenantEntry] = {}
    operators: list[str] = []
    orders_by: Literal["users", "admins"] = "users"
    """Who orders models that are not served."""
    notice_days: int | None = None
    """Between the day on which an end is shown and that end."""

    @property
    def titles(self) -> dict[str, str]:
        """Of each model, by its name."""
        return {name: model.title for name, model in {**self.orderable, **self.models}.items()}

    @property
    def groups(self) -> set[str]:
        """All that it names."""
        tenants = self.tenants.values()
        return {*self.operators, *(group for tenant in tenants for group in (*tenant.admins, *tenant.users))}


class CatalogueFile:
    """The file; a version that cannot be read leaves the one before it in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_of: object = None
        self._catalogue: Catalogue | None = None
        self._problem = ""

    def read(self) -> Catalogue:
        """The newest version that could be read. Raises PortalError where there was none."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._read_of:
                self._read_of = version
                self._catalogue = Catalogue.model_validate_json(self._path.read_bytes())
        except OSError as error:
            self._note(error.strerror or type(error).__name__)
        except ValidationError as error:
            places = [".".join(map(str, detail["loc"])) or "the whole" for detail in error.errors(include_url=False)]
            self._note(f"wrong at {', '.join(places[:5])}")
        if self._catalogue is None:
            fix = "Mount the file as the platform's program writes it: run pulumi up."
            raise PortalError(
                503, "not_configured", f"The catalogue {self._path} cannot be read: {self._problem}.", fix
            )
        return self._catalogue

    def _note(self, problem: str) -> None:
        self._problem = problem
        log.warning("catalogue %s: %s", self._path, problem)
