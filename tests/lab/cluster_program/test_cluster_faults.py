"""Faults under the real engine: an error that names node and step, and a next `up` that goes on from there.

Each kind of fault, and what each command says of it, is in test_command_faults.py.
"""

from __future__ import annotations

import re

import pytest

from lab.machines.faults import Fault
from lab.machines.image_factory import ImageFactoryServer
from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rig import Rig

pytestmark = pytest.mark.row("opening 4")

# In the order of the bring-up: resource, node, fault, and what the engine shows of it. No time decides any of them.
STEPS = (
    (
        "machines-nodes-cp-1-install",
        "cp-1",
        Fault(kind="refuse", code="INTERNAL", calls=("ApplyConfiguration",)),
        "error: cp-1: ApplyConfiguration: refused on request",
    ),
    (
        "machines-nodes-bootstrap",
        "cp-1",
        Fault(kind="refuse", code="INTERNAL", calls=("Bootstrap",)),
        "error: cp-1: Bootstrap: refused on request",
    ),
    (
        "machines-nodes-hgx-1-install",
        "hgx-1",
        Fault(kind="installer-fails"),
        "error: hgx-1: came back in maintenance mode: the install did not succeed",
    ),
)


def diagnostics(output: str) -> dict[str, str]:
    """What the engine says at the end of each resource, by the resource's name."""
    _, _, end = output.rpartition("Diagnostics:")
    parts = re.split(r"^  [\w:/]+ \(([\w-]+)\):$", end, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.exhaustive
def test_each_step_that_fails_is_named_and_the_next_up_goes_on(make_rig: NewRig) -> None:
    rig = make_rig("infra", "hgx-h200")
    _without_its_image_factory(rig)
    for resource, node, fault, message in STEPS:
        rig.fault(node, fault)
        shown = diagnostics(rig.up(check=False))
        assert message in shown[resource], shown
        others = {other for _, _, _, other in STEPS} - {message}
        assert [other for other in others if other in "".join(shown.values())] == []
        rig.restore()
    rig.up()
    assert all(rig.machine(name).node_is_ready for name in rig.nodes)
    rig.pulumi("preview", "--expect-no-changes")


def _without_its_image_factory(rig: Rig) -> None:
    """An image factory that is away is named, and no machine is touched."""
    factory = rig.rack.factory
    assert factory is not None
    host, _, port = factory.registry.partition(":")
    factory.close()
    failed = rig.up(check=False)
    assert factory.url in failed, failed[-3000:]
    assert "Traceback" not in failed, failed
    assert all(rig.machine(name).stage == "maintenance" for name in rig.nodes)
    rig.rack.factory = ImageFactoryServer(factory.content, host, int(port))
