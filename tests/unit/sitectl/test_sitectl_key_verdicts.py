"""Verdicts on the Secrets of tenants' keys: another set of keys is another Secret."""

from __future__ import annotations

from typing import Any

import pytest

from components.specs.access import KeySpec, TenantSpec, secret_name, tenant_of
from components.tenants.callers import mounted
from policy.model import Resource
from sitectl.change.changes import Change, between
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("opening 3")


def named(tenant: str, **rotations: int) -> str:
    keys = {key: KeySpec(rotation=rotation) for key, rotation in rotations.items()}
    return secret_name(tenant, TenantSpec(models=("m",), keys=keys))


def replaced(before: str, after: str) -> Change:
    old, new = ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}} for name in (before, after))
    return Change(op="replace", type="kubernetes:core/v1:Secret", name="x", before=old, after=new)


def test_a_name_is_of_one_set_of_keys_and_tells_the_tenant() -> None:
    names = [named("a", x=1), named("a", x=2), named("a", y=1), named("a", x=1, y=1), named("b", x=1)]
    assert len(set(names)) == len(names)
    assert named("a", x=1, y=2) == named("a", y=2, x=1)
    assert [tenant_of(name) for name in (*names[3:], "keys-first-team", "weights-bucket")] == [
        "a",
        "b",
        "first-team",
        None,
    ]


def test_another_set_of_keys_stops_none_that_stays() -> None:
    (changed,) = classify(replaced(named("first-team", x=1), named("first-team", x=2)))
    assert (changed.severity, changed.tenants) == (Severity.LIVE, ("first-team",))
    (again,) = classify(replaced(named("first-team", x=1), named("first-team", x=1)))
    assert again.severity == Severity.REPLACED


def test_objects_with_another_name_for_other_content_are_one_change() -> None:
    """By what the program calls them: else another set of keys would be the loss of the tenant's."""

    def declared(rotation: int, name: str = "access-acme-keys") -> Resource:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": named("acme", x=rotation), "namespace": "g"}}
        return Resource(type="kubernetes:core/v1:Secret", name=name, body=body)

    (change,) = between([declared(1)], [declared(2)])
    assert (change.op, change.replaced_by) == ("replace", ("metadata.name",))
    assert [row.severity for row in classify(change)] == [Severity.LIVE]
    assert {change.op for change in between([declared(1)], [declared(2, name="others")])} == {"create", "delete"}


def test_digests_change_in_place() -> None:
    body = mounted("g", "keys", {"keys.json": "x"}, secret=True)
    change = Change(op="update", type="kubernetes:core/v1:Secret", name="callers-keys", before=body, after=body)
    (row,) = classify(change)
    assert (row.severity, row.reason) == (Severity.LIVE, "gatekeepers read them again")


@pytest.mark.row("004.04", "opening 3")
def test_a_plan_shows_what_keys_are_watched_by_and_how_many_that_suspends() -> None:
    """Where it differs, and nothing where it does not."""

    def pods(name: str, *options: str) -> dict[str, Any]:
        containers = [{"args": ["--port=8080", *options]}]
        template = {"spec": {"containers": containers}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"template": template},
        }

    def shown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
        change = Change(op="update", type="kubernetes:apps/v1:Deployment", name="x-pods", before=before, after=after)
        rows = classify(change)
        assert {row.severity for row in rows} == {Severity.LIVE}
        return [row.what for row in rows[1:]]

    ledger, watching = pods("ledger"), pods("ledger", '--watch-keys={"burst_factor": 10, "networks": 20}')
    assert shown(ledger, watching) == ["keys are watched: burst_factor 10, networks 20"]
    assert shown(watching, ledger) == ["keys are not watched any more"]
    directory = pods("directory")
    three, two = (
        pods("directory", "--suspend-on=networks,burst", f"--most-suspended-per-hour={most}") for most in (3, 2)
    )
    assert shown(directory, three) == ["networks,burst suspend keys, at most 3 an hour"]
    assert shown(three, two) == ["networks,burst suspend keys, at most 2 an hour"]
    assert shown(three, directory) == ["no signal suspends a key"]
    options = ("--suspend-on=networks,burst", "--most-suspended-per-hour=2", "--never-suspend=search.ci")
    spared = pods("directory", *options)
    assert shown(two, spared) == ["networks,burst suspend keys, at most 2 an hour, and never search.ci"]
    assert shown(three, three) == shown(ledger, ledger) == []
