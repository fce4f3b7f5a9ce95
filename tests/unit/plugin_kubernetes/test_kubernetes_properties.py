"""Property trees: what comes from the engine goes back to it unchanged, and secrets stay marked."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime import rpc

from lab.plugins.kubernetes.objects import checkpoint, read_checkpoint, to_object
from lab.plugins.kubernetes.properties import (
    UNKNOWN,
    Secret,
    decode,
    encode,
    has_unknown,
    hide,
    mark_secrets,
    plain,
    secret_texts,
)


@pytest.mark.parametrize(
    "tree",
    [
        {"text": "a", "count": 3, "share": 0.5, "yes": True, "no": False, "none": None},
        {"empty": {}, "nothing": [], "deep": {"list": [1, {"a": [[]]}]}},
        {"secret": Secret({"k": "v"}), "unknown": UNKNOWN, "inside": [Secret("x"), UNKNOWN]},
    ],
)
def test_a_tree_survives_the_wire(tree: dict[str, Any]) -> None:
    assert decode(encode(tree)) == tree


def test_whole_numbers_become_integers() -> None:
    message = struct_pb2.Struct()
    message.update({"replicas": 3.0, "weight": 2.5})
    decoded = decode(message)
    assert decoded == {"replicas": 3, "weight": 2.5}
    assert isinstance(decoded["replicas"], int)


def test_every_placeholder_of_the_engine_is_unknown() -> None:
    message = struct_pb2.Struct()
    message.update({"a": rpc.UNKNOWN, "b": "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7"})
    assert decode(message) == {"a": UNKNOWN, "b": UNKNOWN}


def test_a_secret_never_shows_itself() -> None:
    assert "hunter2" not in repr(Secret("hunter2"))
    assert plain({"a": Secret({"b": Secret("c")})}) == {"a": {"b": "c"}}
    assert has_unknown({"a": Secret([UNKNOWN])})


def test_secrets_of_inputs_are_secrets_of_outputs() -> None:
    outputs: dict[str, Any] = {"spec": {"a": "x", "b": "y", "list": ["1", "2"]}, "status": {}}
    mark_secrets(outputs, {"spec": {"a": Secret("x"), "list": ["1", Secret("2")]}})
    assert outputs == {"spec": {"a": Secret("x"), "b": "y", "list": Secret(["1", "2"])}, "status": {}}


def test_data_of_a_secret_object_is_always_secret() -> None:
    outputs: dict[str, Any] = {"kind": "Secret", "data": {"a": "eA=="}}
    mark_secrets(outputs, {})
    assert outputs["data"] == Secret({"a": "eA=="})


def test_the_checkpoint_holds_live_inputs_version_and_manager() -> None:
    inputs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    live = {**inputs, "metadata": {"name": "a", "uid": "1"}}
    state = checkpoint(
        inputs, live, {"data": {"k": Secret("v")}}, initial_api_version="v1", field_manager="pulumi-kubernetes-0"
    )
    assert state["__initialApiVersion"] == "v1"
    assert state["__fieldManager"] == "pulumi-kubernetes-0"
    assert state["data"] == {"k": Secret("v")}
    assert state["__inputs"]["data"] == {"k": Secret("v")}
    old_inputs, old_live = read_checkpoint(decode(encode(state)))
    assert old_inputs == inputs
    assert old_live["metadata"] == {"name": "a", "uid": "1"}


def test_the_oldest_states_keep_inputs_beside_live() -> None:
    assert read_checkpoint({"inputs": {"kind": "A"}, "live": {"kind": "B"}}) == ({"kind": "A"}, {"kind": "B"})


def test_schema_keywords_are_dashed_for_the_cluster_and_underscored_in_the_state() -> None:
    obj = to_object({"kind": "X", "spec": {"x_kubernetes_list_type": "map"}})
    assert obj["spec"] == {"x-kubernetes-list-type": "map"}
    state = checkpoint(obj, obj, {}, initial_api_version="v1", field_manager="m")
    assert state["spec"] == {"x_kubernetes_list_type": "map"}


def test_secret_texts_are_blotted_out_of_messages() -> None:
    texts = secret_texts({"a": Secret({"b": ["hunter2", 5, "x"]}), "c": "shown"})
    assert texts == {"hunter2"}, "short texts would blot out half of a message"
    assert hide('Invalid value: "hunter2": shown', texts) == 'Invalid value: "[secret]": shown'
