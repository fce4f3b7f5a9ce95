"""Faults of what decides about callers."""

from __future__ import annotations

from tests.alert_site import Case, answered, constant, files_refused, grows, heard, target

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
    Case(alert="DirectoryKeysUnknown", change={answered("unknown"): grows(15)}, shown="20%", minutes=10),
    # It has never heard of it; promtool's time begins at 0.
    Case(
        alert="DirectoryNotHeard",
        change={heard("gatekeeper-b"): constant(0)},
        labels={"pod": "gatekeeper-b"},
        shown="10",
        minutes=10,
    ),
)
