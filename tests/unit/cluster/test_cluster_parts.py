from __future__ import annotations

import pytest
from kubernetes import client

from lab.cluster.parts import metadata_of, name_of, namespace_of, spec_of, status_of

POD = client.V1Pod.model_validate(
    {
        "metadata": {"name": "web", "namespace": "team", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
)


def test_parts_of_a_pod() -> None:
    assert (name_of(POD), namespace_of(POD)) == ("web", "team")
    assert metadata_of(POD).labels == {"a": "b"}
    assert spec_of(POD).containers[0].name == "main"
    assert status_of(POD).phase == "Running"


def test_missing_part_is_an_error_that_waiting_takes_for_not_yet() -> None:
    with pytest.raises(LookupError, match="lacks a part"):
        status_of(client.V1Pod(metadata=client.V1ObjectMeta(name="web")))
