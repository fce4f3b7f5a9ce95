"""Faults of what decides about callers."""

from __future__ import annotations

from tests.alert_series import (
    PORTAL_READY,
    PORTALS_UP,
    answered,
    budget_used,
    files_refused,
    heard,
    heard_of_use,
    of_directory,
    of_ledger,
    overflow,
    portal_failures,
    room_refusals,
    signal_of_keys,
)
from tests.alert_site import Case, constant, grows, target

_GATEKEEPERS = [target("gatekeeper", f"gatekeeper-{letter}") for letter in "ab"]

CASES = (
    # They do not answer, or there are none.
    Case(alert="GatekeepersDown", change=dict.fromkeys(_GATEKEEPERS, constant(0)), shown="0", minutes=5),
    Case(alert="GatekeepersDown", change=dict.fromkeys(_GATEKEEPERS), shown="0", minutes=5),
    Case(alert="GatekeeperMissing", change={_GATEKEEPERS[0]: None}, shown="1"),
    Case(
        alert="GatekeeperFilesRefused",
        change={files_refused("gatekeeper-a"): constant(1)},
        labels={"pod": "gatekeeper-a"},
        shown="1",
    ),
    # What is kept for other tiers is refused by choice.
    Case(
        alert="ModelHasNoRoom",
        change={room_refusals("full"): grows(60), room_refusals("kept"): grows(600)},
        labels={"model": "code"},
        shown="100%",
    ),
    Case(alert="DirectoryKeysUnknown", change={answered("unknown"): grows(15)}, shown="20%", minutes=10),
    Case(
        alert="ModelOverflows",
        change={overflow("share"): constant(0.25)},
        labels={"model": "code"},
        shown="25%",
        minutes=45,
    ),
    Case(
        alert="OverflowBlind",
        change={overflow("unread_total"): grows(60)},
        labels={"model": "code"},
        shown="300",
    ),
    # It has never heard of it; promtool's time begins at 0.
    Case(
        alert="DirectoryNotHeard",
        change={heard("gatekeeper-b"): constant(0)},
        labels={"pod": "gatekeeper-b"},
        shown="10",
        minutes=10,
    ),
    Case(
        alert="BudgetNearlySpent",
        change={budget_used("tokens_per_month"): constant(0.85)},
        labels={"tenant": "acme", "budget": "tokens_per_month"},
        shown="85%",
    ),
    Case(
        alert="BudgetSpent",
        change={budget_used("spend_per_month"): constant(1.02)},
        labels={"tenant": "acme", "budget": "spend_per_month"},
        shown="102%",
    ),
    Case(
        alert="BudgetsNotHeld",
        change={heard_of_use("gatekeeper-b"): constant(0)},
        labels={"pod": "gatekeeper-b"},
        shown="10",
        minutes=10,
    ),
    Case(
        alert="KeySignal",
        change={signal_of_keys("networks"): constant(1)},
        labels={"tenant": "acme", "key": "ci", "signal": "networks"},
    ),
    Case(
        alert="KeysUnwatched", change={of_ledger("keys_looked_timestamp_seconds"): constant(0)}, shown="20", minutes=20
    ),
    Case(
        alert="KeySuspended",
        change={of_directory("suspensions", ', tenant="acme", key="ci", by="signal"'): constant(1)},
        labels={"tenant": "acme", "key": "ci"},
    ),
    Case(alert="SuspensionsHeld", change={of_directory("suspensions_held"): constant(7)}, shown="7"),
    Case(
        alert="SignalsUnread",
        change={of_directory("key_signals_read_timestamp_seconds"): constant(0)},
        shown="20",
        minutes=20,
    ),
    # They do not answer, there are none, and both run without their catalogue.
    *(
        Case(alert="PortalDown", change=change, shown="0", minutes=10)
        for change in (dict.fromkeys(PORTALS_UP, constant(0)), dict.fromkeys(PORTALS_UP), {PORTAL_READY: constant(0)})
    ),
    Case(
        alert="PortalPartAway",
        change={portal_failures("ledger of usage"): grows(1)},
        labels={"part": "ledger of usage"},
        shown="10",
        minutes=30,
    ),
)
