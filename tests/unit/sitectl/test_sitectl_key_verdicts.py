"""Verdicts on the Secrets of tenants' keys: another set of keys is another Secret."""

from __future__ import annotations

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
