"""What holds data is declared in one way: its options follow from what it is, and from what the site lets go."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime.stack import wait_for_rpcs
from pulumi_command import local

from components.component import Component
from components.objects import declare
from floor.stateful import IDENTITY, VOLUME, Holder, Keeping
from tests.unit.pulumi_runtime import Recorder, in_own_runtime

pytestmark = pytest.mark.row("C.04", "opening 15")

CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "b"}}


class Store(Component, token="made-up:Store"):
    """A part with a volume and a secret that is made once."""

    def __init__(self, name: str, keeping: Keeping) -> None:
        super().__init__(name)
        before = self.child("space", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b"}})
        self.stateful(
            "data",
            VOLUME,
            lambda logical, opts: declare(logical, CLAIM, opts),
            keeping=keeping,
            depends_on=[before],
        )
        self.stateful(
            "secrets",
            IDENTITY,
            lambda logical, opts: local.Command(logical, create="true", opts=opts),
            keeping=keeping,
            secret_outputs=["stdout"],
        )
        self.finish()


def requests(keeping: Keeping) -> dict[str, Any]:
    """What the engine gets of a store."""
    recorder = Recorder()

    async def run() -> None:
        Store("store", keeping)
        await wait_for_rpcs()

    in_own_runtime(recorder.mocks, run, monitor=recorder)
    return recorder.requests


@pytest.mark.parametrize(("keeping", "kept"), [("protected", True), ("disposable", False)])
def test_what_holds_data_is_kept_unless_the_site_lets_it_go(keeping: Keeping, kept: bool) -> None:
    """The engine refuses to delete or replace what is protected."""
    made = requests(keeping)
    assert (made["store-data"].protect, made["store-secrets"].protect) == (kept, kept)
    assert (made["store-data"].retainOnDelete, made["store-secrets"].retainOnDelete) == (False, kept)
    assert not any(child.deleteBeforeReplace for child in made.values())
    assert not made["store-space"].protect


def test_what_holds_data_is_a_child_like_the_others() -> None:
    made = requests("protected")
    data, secrets = made["store-data"], made["store-secrets"]
    assert {data.parent, secrets.parent} == {made["store-space"].parent}
    assert [urn.rpartition("::")[2] for urn in data.dependencies] == ["store-space"]
    assert list(secrets.additionalSecretOutputs) == ["stdout"]


def test_each_sort_says_how_a_site_lets_it_go() -> None:
    sorts: tuple[Holder, ...] = (VOLUME, IDENTITY)
    assert all("disposable" in sort.permission for sort in sorts)
