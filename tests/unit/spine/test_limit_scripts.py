"""Which of the scripts of limits a site has: another text is another listener, whose streams have its drain time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.gateway.door_scripts import RANK_PATH
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_usage import usage
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.32", "opening 19")

LIMITED = {"tenants.search.limits": {"tokens_per_day": 1}}
RANKS = {"models.rank": {"catalogue": "bge-reranker-v2-m3"}}
GATEKEEPER = {"callers": {"decided_by": "gatekeeper", "database_secret": "directory-database"}}
NAMES = "x-ratelimit-remaining-"


def script(folder: Path, change: dict[str, Any]) -> str:
    folder.mkdir()
    site = plan_values(changed(prod(), change), "site.yaml").site
    scripts = declare(site, folder)[0].resources["tiers-policy"].inputs["spec"]["lua"]
    return str(scripts[-1]["inline"])


@pytest.mark.parametrize("callers", [{}, GATEKEEPER], ids=["gateway", "gatekeeper"])
def test_only_a_site_that_ranks_has_requests_to_rank_charged(tmp_path: Path, callers: dict[str, Any]) -> None:
    plain, ranks = script(tmp_path / "plain", LIMITED | callers), script(tmp_path / "ranks", LIMITED | callers | RANKS)
    assert RANK_PATH in ranks
    assert RANK_PATH not in plain
    assert NAMES in plain


def test_only_a_site_with_limits_names_them(tmp_path: Path) -> None:
    assert NAMES not in script(tmp_path / "metered", usage() | GATEKEEPER)
