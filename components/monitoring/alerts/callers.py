"""Alerts about what decides about callers: the gatekeepers, the directory whose keys they know, and budgets."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from components.monitoring.alerts.models import REFUSED_SHARE, refused_share

_GATEKEEPERS = 'job="gatekeeper"'
_MINUTE_S = 60
# A gatekeeper that waits for a change hears at least every 35 s that there is none (services/gatekeeper/follow.go).
_UNHEARD_MINUTES = 2
# A client that sends a made-up key to a gatekeeper that is starting is not enough.
_UNKNOWN_SHARE = 0.01
_NEARLY_SPENT = 0.8


def gatekeepers() -> list[Alert]:
    """Envoy refuses every request that none of them answers."""
    answers = "gatekeeper_answers_total"
    unknown = queries.rate(answers, f'{_GATEKEEPERS}, answer="unknown"', window="5m")
    answering = queries.total("up", _GATEKEEPERS)
    refused = queries.highest("gatekeeper_files_refused", _GATEKEEPERS, by=("pod",))
    full = f'{_GATEKEEPERS}, why="full"'
    crowded = queries.rate("gatekeeper_room_refusals_total", full, by=("model",), window="5m")
    return [
        Alert(
            name="GatekeepersDown",
            severity="page",
            expression=f"({answering} or vector(0)) == 0",
            minutes=2,
            summary="No gatekeeper answers",
            description="Prometheus reaches none ({{ $value }} is none): every request is refused with 503, or the "
            "gatekeepers' metrics are out of reach.",
            runbook="gatekeeper-down",
        ),
        Alert(
            name="GatekeeperMissing",
            severity="ticket",
            expression=f"{answering} == 1",
            minutes=10,
            summary="One of the two gatekeepers is missing",
            description="{{ $value }} of 2 answers. Requests pass; without that one none would.",
            runbook="gatekeeper-down",
        ),
        Alert(
            name="GatekeeperFilesRefused",
            severity="ticket",
            expression=f"{refused} > 0",
            minutes=10,
            summary="The gatekeeper {{ $labels.pod }} cannot use its files with tenants and keys",
            description="It decides by what they had before ({{ $value }} is yes): changes of the site's file are not "
            "in force there, and a pod that starts with these files ends.",
            runbook="gatekeeper-down",
        ),
        Alert(
            name="ModelHasNoRoom",
            severity="page",
            expression=f"{refused_share(crowded)} > {REFUSED_SHARE:g}",
            minutes=5,
            summary="Requests for {{ $labels.model }} are refused: its KV cache has no room",
            description="{{ $value | humanizePercentage }} of them, by what is under way there. More or longer "
            "requests come than are declared, or a replica is missing.",
            runbook="model-overloaded",
        ),
        Alert(
            name="DirectoryKeysUnknown",
            severity="page",
            expression=f"{queries.share_of(unknown, queries.rate(answers, _GATEKEEPERS, window='5m'))} "
            f"> {_UNKNOWN_SHARE:g}",
            minutes=2,
            summary="A gatekeeper does not know the keys of the directory and refuses them",
            description="{{ $value | humanizePercentage }} of all requests get 503 for it. It has started, and neither "
            "the directory nor the other gatekeeper gave it the keys.",
            runbook="directory-away",
        ),
    ]


def directory() -> list[Alert]:
    """Keys work on without it, and none is made or revoked."""
    last = queries.highest("gatekeeper_directory_last_answer_timestamp_seconds", _GATEKEEPERS, by=("pod",))
    return [
        Alert(
            name="DirectoryNotHeard",
            severity="ticket",
            expression=f"(time() - {last}) / {_MINUTE_S} > {_UNHEARD_MINUTES}",
            minutes=5,
            summary="The gatekeeper {{ $labels.pod }} does not hear of the directory",
            description="For {{ $value | humanize }} minutes; millions of them if never since it started. A key that "
            "was made since then does not work there, and one that was revoked does.",
            runbook="directory-away",
        ),
    ]


def budgets() -> list[Alert]:
    """Of a site with limits of a month, which gatekeepers hold by what the ledger counts."""
    used = queries.highest("gatekeeper_budget_used_ratio", _GATEKEEPERS, by=("tenant", "budget"))
    last = queries.highest("gatekeeper_budgets_last_answer_timestamp_seconds", _GATEKEEPERS, by=("pod",))
    return [
        Alert(
            name="BudgetNearlySpent",
            severity="ticket",
            expression=f"{used} > {_NEARLY_SPENT:g} < 1",
            minutes=0,
            summary="{{ $labels.tenant }} has nearly used its {{ $labels.budget }}",
            description="{{ $value | humanizePercentage }} of it. Once it is used, its requests are refused until the "
            "month ends.",
            runbook="budget-spent",
        ),
        Alert(
            name="BudgetSpent",
            severity="ticket",
            expression=f"{used} >= 1",
            minutes=0,
            summary="{{ $labels.tenant }} has used its {{ $labels.budget }}: its requests are refused",
            description="{{ $value | humanizePercentage }} of it; until the month ends (UTC), or the limit is raised.",
            runbook="budget-spent",
        ),
        Alert(
            name="BudgetsNotHeld",
            severity="ticket",
            expression=f"(time() - {last}) / {_MINUTE_S} > {_UNHEARD_MINUTES}",
            minutes=5,
            summary="The gatekeeper {{ $labels.pod }} does not hear what tenants have used",
            description="For {{ $value | humanize }} minutes; millions of them if never since it started. It refuses "
            "whom it knew as spent, and admits everyone else.",
            runbook="budget-spent",
        ),
    ]
