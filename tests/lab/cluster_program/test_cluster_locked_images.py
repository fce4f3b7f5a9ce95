"""A cluster whose images are locked comes up where no image factory is: its installers were built before."""

from __future__ import annotations

import pytest

from floor.images import image_reference
from lab.machines.image_factory import ImageFactoryServer
from stacks.facts.image_lock import FILE, ImageLock
from stacks.plan.site_plan import plan_values
from tests.lab.cluster_program.conftest import NewRig

pytestmark = pytest.mark.row("opening 14")

DIGEST = f"sha256:{'1' * 64}"


@pytest.mark.exhaustive
def test_up_asks_no_factory_for_installers_that_are_locked(make_rig: NewRig) -> None:
    rig = make_rig("infra", "hgx-h200")
    plan = plan_values(rig.site, "site")
    assert plan.machines is not None
    assert rig.rack.factory is not None
    content = rig.rack.factory.content
    rig.rack.factory.close()
    # What it built is in a registry, which nothing is posted to.
    for node in plan.machines.nodes:
        content.add(node.schematic.canonical())
    built = dict(content.schematics)
    registry = ImageFactoryServer(content)
    rig.rack.factory = registry
    rig.site["cluster"]["machines"]["registries"]["mirrors"] = {
        "*": {"endpoints": [registry.url], "skip_fallback": True}
    }
    rig.site["images"] = {"locked": True}
    rig.write_site()
    lock = ImageLock({}).with_images(image_reference(f"{image}@{DIGEST}") for image in plan.images)
    (rig.project / FILE).write_text(lock.text())

    assert "talos factory" not in rig.preview()
    rig.up()
    assert all(rig.machine(name).node_is_ready for name in rig.nodes)
    assert content.schematics == built
    rig.pulumi("preview", "--expect-no-changes")
