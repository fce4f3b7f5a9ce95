"""Which of the scripts of limits a site has: another text is another listener, whose streams have its drain time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_usage import usage
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.32", "opening 19")

LIMITED = {"tenants.search.limits": {"tokens_per_day": 1}}
RANKS = {"models.rank": {"catalogue": "bge-reranker-v2-m3"}}
GATEKEEPER = {"callers": {"decided_by": "gatekeeper", "database_secret": "directory-database"}}
LEDGER = usage() | GATEKEEPER
NAMES, CHARGED = "x-ratelimit-remaining-", "charge_ranks"


def scripts(folder: Path, change: dict[str, Any]) -> tuple[str, str]:
    """All that is in the front door, and the script that counts."""
    folder.mkdir()
    resources = declare(plan_values(changed(prod(), change), "site.yaml").site, folder)[0].resources
    policy = resources.get("tiers-policy")
    counting = policy.inputs["spec"]["lua"][-1]["inline"] if policy else ""
    return json.dumps(resources["front-door-filters"].inputs["spec"]), counting


@pytest.mark.slow
@pytest.mark.parametrize("counts", [LIMITED, LIMITED | GATEKEEPER, LEDGER], ids=["gateway", "gatekeeper", "ledger"])
def test_only_a_site_that_ranks_and_counts_has_requests_to_rank_charged(tmp_path: Path, counts: dict[str, Any]) -> None:
    doors = [scripts(tmp_path / str(at), change)[0] for at, change in enumerate((counts, RANKS, {}, counts | RANKS))]
    assert [CHARGED in door for door in doors] == [False, False, False, True]


@pytest.mark.slow
def test_only_a_site_with_limits_names_them(tmp_path: Path) -> None:
    assert NAMES in scripts(tmp_path / "limited", LIMITED)[1]
    assert NAMES in scripts(tmp_path / "decided", LIMITED | GATEKEEPER)[1]
    assert NAMES not in scripts(tmp_path / "metered", LEDGER)[1]
