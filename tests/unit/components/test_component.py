"""What holds data is declared in one way: its options follow from what it is, and from what the site lets go."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.stack import wait_for_rpcs
from pulumi_command import local

from components.component import Component
from components.objects import declare
from floor.stateful import IDENTITY, VOLUME, Holder, Keeping
from tests.unit.pulumi_runtime import in_own_runtime

pytestmark = pytest.mark.row("C.04", "opening 15")

CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "b"}}


class Inputs(Mocks):
    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return args.name, dict(args.inputs)

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


class Recorder(MockMonitor):
    """Keeps what an engine gets for each resource, by name."""

    def __init__(self) -> None:
        super().__init__(Inputs())
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        self.requests[request.name] = request
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


class Store(Component):
    """A part with a volume and a secret that is made once."""

    def __init__(self, name: str, keeping: Keeping, formerly: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        before = self.child("space", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b"}})
        self.stateful(
            "data",
            VOLUME,
            lambda logical, opts: declare(logical, CLAIM, opts),
            keeping=keeping,
            depends_on=[before],
            formerly=formerly,
        )
        self.stateful(
            "secrets",
            IDENTITY,
            lambda logical, opts: local.Command(logical, create="true", opts=opts),
            keeping=keeping,
            secret_outputs=["stdout"],
        )
        self.finish()


def requests(keeping: Keeping, formerly: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the engine gets of a store."""
    recorder = Recorder()

    async def run() -> None:
        Store("store", keeping, formerly)
        await wait_for_rpcs()

    in_own_runtime(recorder.mocks, run, monitor=recorder)
    return recorder.requests


@pytest.mark.parametrize(("keeping", "kept"), [("protected", True), ("disposable", False)])
def test_what_holds_data_is_kept_unless_the_site_lets_it_go(keeping: Keeping, kept: bool) -> None:
    """The engine refuses to delete or replace what is protected."""
    made = requests(keeping)
    assert (made["store-data"].protect, made["store-secrets"].protect) == (kept, kept)
    assert (made["store-data"].retainOnDelete, made["store-secrets"].retainOnDelete) == (False, kept)
    assert not any(each.deleteBeforeReplace for each in made.values())
    assert not made["store-space"].protect


def test_what_holds_data_is_a_child_like_the_others() -> None:
    made = requests("protected")
    data, secrets = made["store-data"], made["store-secrets"]
    assert {data.parent, secrets.parent} == {made["store-space"].parent}
    assert [each.rpartition("::")[2] for each in data.dependencies] == ["store-space"]
    assert list(secrets.additionalSecretOutputs) == ["stdout"]
    assert list(data.aliases) == []


def test_a_renamed_one_is_the_same_resource() -> None:
    """Without its former name the engine would delete the data under it."""
    made = requests("protected", formerly=("weights", "files"))
    names = [alias.spec.name for alias in made["store-data"].aliases]
    assert names == ["store-weights", "store-files"]


def test_each_sort_says_how_a_site_lets_it_go() -> None:
    sorts: tuple[Holder, ...] = (VOLUME, IDENTITY)
    assert all("disposable" in sort.permission for sort in sorts)
