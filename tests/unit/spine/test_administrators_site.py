"""A site with administrators, under the SDK's mocks: their roles are there, and reach what the platform declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_administrators import PEOPLE, SECTION
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.05")

HIDDEN = {"rbac.authorization.k8s.io", "helm.sh"}


@pytest.mark.slow
def test_viewers_read_every_kind_that_the_site_declares_but_secrets_and_roles(tmp_path: Path) -> None:
    site = plan_values(changed(prod(), {SECTION: PEOPLE}), "Pulumi.prod.yaml").site
    resources = declare(site, tmp_path)[0].resources
    bound = {
        name: [subject["name"] for subject in resources[f"administrators-{name}"].inputs["subjects"]]
        for name in ("viewers", "operators", "admins")
    }
    assert bound == {
        "viewers": ["oidc:seers", "oidc:hands"],
        "operators": ["oidc:hands"],
        "admins": ["oidc:heads"],
    }
    rules = resources["administrators-viewer"].inputs["rules"]
    readable = {(group, kind) for rule in rules for group in rule["apiGroups"] for kind in rule["resources"]}
    declared = {
        ("" if match["group"] == "core" else match["group"], match["kind"].lower().removesuffix("patch") + "s")
        for resource in resources.values()
        if (match := re.fullmatch(r"kubernetes:(?P<group>[^/:]+)/\w+:(?P<kind>\w+)", resource.typ))
    }
    assert ("", "secrets") in declared
    unread = {(group, kind) for group, kind in declared if group not in HIDDEN and (group, "*") not in readable}
    assert unread - readable == {("", "secrets")}
