"""Live checks of models that may have no replica: what has none on purpose is not asked, as that would start it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.live.running import Object, RunningSite
from tests.live.test_live_models import generators
from tests.unit.stacks.test_scaling import QWEN, plan

pytestmark = pytest.mark.row("001.30")


@dataclass(frozen=True, kw_only=True)
class Counted(RunningSite):
    """A site whose Deployments are declared with so many replicas."""

    replicas: int

    def read(self, path: str, **parameters: str) -> Object:  # noqa: ARG002 - of any path
        return {"spec": {"replicas": self.replicas, "template": {"spec": {"containers": [{}]}}}}


@pytest.mark.parametrize(("replicas", "asked"), [(0, ["glm-5-1"]), (1, ["glm-5-1", "qwen3-32b"])])
def test_a_model_without_a_replica_is_not_asked(replicas: int, asked: list[str]) -> None:
    planned = plan({f"{QWEN}.scaling": {"least": 0}})
    site = Counted(name="prod", plan=planned, endpoint="http://site/v1", keys={}, kubeconfig={}, replicas=replicas)
    assert [revision.name for revision in generators(site)] == asked
