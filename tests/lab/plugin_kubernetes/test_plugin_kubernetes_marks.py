"""The marks that addons put on objects of others: they wait for the effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from components.addons.addon import Offer
from components.addons.gpu_stack import offered
from components.objects import owned
from tests.lab.plugin_kubernetes.conftest import Plane
from tests.lab.provider_driver import Declared, Driver, FailedError

pytestmark = pytest.mark.row("000.12", "C.01")

NODE = "hgx-9"


def mark(installed: str = "gpu-operator-v1", *, limit_s: int = 60) -> Declared:
    body: dict[str, Any] = owned(
        offered(NODE, Offer(resource="nvidia.com/gpu", count=8), installed), "inference-platform-lab"
    )
    body["metadata"]["annotations"]["pulumi.com/timeoutSeconds"] = str(limit_s)
    return Declared(type="kubernetes:core/v1:NodePatch", name="offered", inputs=body)


@pytest.fixture
def node(plane: Plane) -> Iterator[Plane]:
    """A node that the device plugin has not reached yet."""
    plane.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    yield plane
    plane.kubectl("delete", "node", NODE)


def offers(plane: Plane, gpus: int) -> None:
    counts = {"nvidia.com/gpu": str(gpus)}
    status = {"status": {"capacity": counts, "allocatable": counts}}
    plane.kubectl(
        "patch", "node", NODE, "--subresource=status", "--type=merge", "--patch-file=/dev/stdin", given=status
    )


def test_a_node_is_waited_for_until_it_offers_all_its_gpus(node: Plane, driver: Driver) -> None:
    """What is shown is what its runbook begins with."""
    with pytest.raises(FailedError, match=r"\{\.status\.allocatable\['nvidia\.com/gpu'\]\} selected nothing"):
        driver.up(mark(limit_s=1))
    offers(node, 7)
    with pytest.raises(FailedError, match=r'found "7"'):
        driver.up(mark(limit_s=1))
    offers(node, 8)
    driver.up(mark())
    driver.unchanged(mark())
    assert node.get("node", NODE)["metadata"]["annotations"]["inference-platform/gpu-stack"] == "gpu-operator-v1"
    assert driver.preview(mark("gpu-operator-v2"))["offered"].op == "update", "another version is waited for again"
