"""Talos's own validator on every config of every committed site and of a site with every key; planted mistakes fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.site.loader import KEY
from tests.lab.talos_checker.checking import Checker
from tests.unit.stacks.site_examples import ROOT, configs, every_key

SITES = {
    path.name: site["cluster"]["machines"]
    for path in sorted(ROOT.glob("Pulumi.*.yaml"))
    if "machines" in (site := yaml.safe_load(path.read_text())["config"][KEY])["cluster"]
}


@pytest.mark.parametrize("machines", [*SITES.values(), every_key()], ids=[*SITES, "every key"])
def test_every_config_of_a_site_is_valid(checker: Checker, machines: dict[str, Any]) -> None:
    made = configs(machines)
    assert len(made) == len(machines["nodes"])
    for name, answer in zip(made, checker.validate(*made.values()), strict=True):
        assert (name, answer["errors"], answer["warnings"]) == (name, [], [])


def test_the_annotated_site_is_among_them() -> None:
    roles = [node["role"] for node in SITES[Path("Pulumi.prod.yaml").name]["nodes"].values()]
    assert (roles.count("controlplane"), roles.count("hgx")) == (3, 4)


PLANTED: list[tuple[str, Callable[[str], str]]] = [
    ("field", lambda text: text.replace("nodeLabels:", "nodeLabel:")),
    ("selector", lambda text: text.replace("disk.bus_path ==", "disk.bus_paths ==")),
    ("bond mode", lambda text: text.replace("802.3ad", "802.3xx")),
    ("twice", lambda text: text + "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n"),
]


@pytest.mark.parametrize("plant", [planted[1] for planted in PLANTED], ids=[planted[0] for planted in PLANTED])
def test_a_planted_mistake_goes_red(checker: Checker, plant: Callable[[str], str]) -> None:
    good = configs(SITES["Pulumi.prod.yaml"])["hgx-1"]
    bad = plant(good)
    assert bad != good
    [answer] = checker.validate(bad)
    assert answer["errors"]
