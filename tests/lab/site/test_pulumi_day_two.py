"""What pulumi says of a site that is up: nothing when nothing changed, one property when one argument changed, and
every drift. Under the real engine, on the live platform.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.paths import CHECKOUT
from tests.lab.site.cluster_objects import Object, declared, inventory, kubectl
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("C.04", "C.06")

MODELS = "inference-models"


@pytest.fixture
def pulumi(site: Site, tmp_path: Path) -> Pulumi:
    return Pulumi(site.lab, tmp_path)


def test_nothing_to_do_after_up(pulumi: Pulumi) -> None:
    objects = inventory(pulumi.lab)
    for run in (
        ("up", "--yes", "--skip-preview", "--expect-no-changes"),
        ("preview", "--refresh", "--expect-no-changes"),
    ):
        done = pulumi(*run)
        assert "unchanged" in done.stdout, run
    after = inventory(pulumi.lab)
    assert declared(after) == declared(objects)
    assert _generations(after) == _generations(objects)
    assert len(_generations(objects)) > 40


def _generations(objects: dict[str, Object]) -> dict[str, int]:
    """How often the specification of each declared object was written."""
    metadata = {name: objects[name]["metadata"] for name in declared(objects)}
    return {
        name: object_metadata["generation"]
        for name, object_metadata in metadata.items()
        if "generation" in object_metadata
    }


def _replicas(site: Document) -> None:
    site["models"]["glm-5-1"]["server"]["replicas"] = 3


def _argument(site: Document) -> None:
    site["models"]["qwen3-32b"]["server"]["extra_args"] = ["--seed=7"]


def _idle_timeout(site: Document) -> None:
    site["gateway"]["stream_idle_timeout_s"] = 1800


def _picker_memory(site: Document) -> None:
    site["models"]["qwen3-32b"]["pool"]["memory"] = "256Mi"


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        (
            _replicas,
            {
                "glm-5-1-server": ("update", ("spec.replicas",)),
                # The node that the third one is to have gets its label.
                "machines-nodes-hgx-3": ("update", ("stdin",)),
                "glm-5-1-limits": (
                    "update",
                    ("spec.circuitBreaker.maxParallelRequests", "spec.circuitBreaker.maxPendingRequests"),
                ),
            },
        ),
        pytest.param(
            _argument,
            {"qwen3-32b-server": ("update", ("spec.template.spec.containers[0].args[18]",))},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            _picker_memory,
            {"qwen3-32b-picker": ("update", ("spec.template.spec.containers[0].resources.requests.memory",))},
            marks=pytest.mark.exhaustive,
        ),
        (
            _idle_timeout,
            {
                "gateway-clients": ("update", ("spec.timeout.http.streamIdleTimeout",)),
                "gateway-backends": ("update", ("spec.timeout.http.streamIdleTimeout",)),
            },
        ),
    ],
)
def test_an_edited_argument_shows_as_its_property_alone(
    pulumi: Pulumi, edit: Callable[[Document], None], changes: dict[str, tuple[str, tuple[str, ...]]]
) -> None:
    checked_in = (CHECKOUT / "Pulumi.lab.yaml").read_bytes()
    assert pulumi.changes(*pulumi.edited(edit)) == changes
    assert (CHECKOUT / "Pulumi.lab.yaml").read_bytes() == checked_in


def test_a_diff_for_people_names_old_and_new_value(pulumi: Pulumi) -> None:
    shown = pulumi("preview", "--diff", *pulumi.edited(_replicas)).stdout
    assert "~ replicas: 2 => 3" in shown
    bound = re.search(r"~ maxParallelRequests: (\d+) => (\d+)", shown)
    assert bound, shown
    assert int(bound[2]) * 2 == int(bound[1]) * 3, "the gateway's bound follows the replicas"
    assert "~ 3 to update" in shown


def test_drift_is_shown_by_refresh_and_mended_by_up(pulumi: Pulumi) -> None:
    before = declared(inventory(pulumi.lab))
    limit = {"spec": {"circuitBreaker": {"maxConnections": 4096}}}
    kubectl(pulumi.lab, "scale", "deployment/qwen3-32b-epp", "--replicas=2", "-n", MODELS)
    kubectl(
        pulumi.lab, "patch", "backendtrafficpolicy/qwen3-32b", "-n", MODELS, "--type=merge", "-p", json.dumps(limit)
    )
    kubectl(pulumi.lab, "delete", "poddisruptionbudget/qwen3-32b", "-n", MODELS)

    shown = pulumi("refresh", "--yes", "--skip-preview", "--diff").stdout
    assert "~ replicas: 1 => 2" in shown
    assert re.search(r"~ maxConnections *: 65536 => 4096", shown), shown
    assert "- 1 deleted" in shown
    assert "~ 2 updated" in shown

    assert pulumi.changes() == {
        "qwen3-32b-picker": ("update", ("spec.replicas",)),
        "qwen3-32b-limits": ("update", ("spec.circuitBreaker.maxConnections",)),
        "qwen3-32b-budget": ("create", ()),
    }
    pulumi("up", "--yes", "--skip-preview")
    assert declared(inventory(pulumi.lab)) == before
    pulumi("preview", "--refresh", "--expect-no-changes")
