"""What the API server refuses: a preview fails with it, and the state of a refused update shows it."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lab.plugins.kubernetes import resources
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.config import ProviderConfig
from lab.plugins.kubernetes.errors import ApiError, ProviderError
from lab.plugins.kubernetes.resources import InitializationError
from lab.plugins.kubernetes.session import Log, Operation, ProviderSession

pytestmark = pytest.mark.row("C.04")

URN = "urn:pulumi:dev::plugin::kubernetes:apps/v1:Deployment::chat"
WRONG_TYPE = ApiError(500, "", "failed to create typed patch object: .spec.replicas: expected numeric, got many")
WEBHOOK = ApiError(500, "InternalError", 'failed calling webhook "validate": connect: connection refused')
INVALID = ApiError(422, "Invalid", "spec.replicas: Invalid value: -1")
POLICY = ApiError(403, "Forbidden", "denied request: failed to find resource referenced by paramKind")


def chat(replicas: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "m"}, "spec": spec}


@dataclass
class Refusing:
    """A cluster with one object, which refuses each apply of it."""

    refusal: ApiError
    live: dict[str, Any] = field(default_factory=lambda: chat(1))

    def knows(self, _: object) -> bool:
        return True

    namespaced = knows

    def get(self, *_: object) -> dict[str, Any]:
        if not self.live:
            raise ApiError(404, "NotFound", "it is gone")
        return copy.deepcopy(self.live)

    def apply(self, *_: object, **_options: object) -> Any:
        raise self.refusal


def operation(cluster: Refusing, *, preview: bool = False) -> Operation:
    session = ProviderSession(
        ProviderConfig(upsert=True), cast("Log", None), threading.Event(), reachable=cast("Cluster", cluster)
    )
    return Operation(session, URN, preview=preview)


STATE = {**chat(1), "__inputs": chat(1), "__initialApiVersion": "apps/v1", "__fieldManager": "site"}


@pytest.mark.parametrize("refusal", [WRONG_TYPE, WEBHOOK, INVALID], ids=["type", "webhook", "value"])
def test_a_preview_fails_with_what_up_would_fail_with(refusal: ApiError) -> None:
    """Also of a create. Forbidden alone is shown as the inputs."""
    with pytest.raises(ProviderError, match="cannot create"):
        resources.create(operation(Refusing(refusal), preview=True), chat("many"))
    with pytest.raises(InitializationError, match="cannot update"):
        resources.update(operation(Refusing(refusal), preview=True), "m/chat", STATE, chat("many"), [])
    assert resources.create(operation(Refusing(POLICY), preview=True), chat(2)) is None
    assert resources.update(operation(Refusing(POLICY), preview=True), "m/chat", STATE, chat(2), []) is None


def test_a_refused_update_is_an_init_error_with_its_inputs_and_the_object_as_it_is() -> None:
    """The engine updates a resource with an init error, whether or not anything differs."""
    cluster = Refusing(INVALID)
    with pytest.raises(InitializationError, match=r"cannot update Deployment m/chat: spec\.replicas") as refused:
        resources.update(operation(cluster), "m/chat", STATE, chat(-1), [])
    stored = refused.value.stored
    assert (stored.id, stored.inputs, len(refused.value.reasons)) == ("m/chat", None, 1)
    assert (stored.state["__inputs"], stored.state["spec"]) == (chat(-1), chat(1)["spec"])
    again = resources.diff(operation(cluster), stored.state, chat(-1), [])
    assert list(again.changes) == ["spec.replicas"]
    assert not resources.diff(operation(cluster), stored.state, chat(1), []).changed


def test_a_refused_update_of_an_object_that_is_gone_leaves_the_state() -> None:
    cluster = Refusing(INVALID, live={})
    with pytest.raises(ProviderError, match="cannot update Deployment m/chat"):
        resources.update(operation(cluster), "m/chat", STATE, chat(-1), [])
