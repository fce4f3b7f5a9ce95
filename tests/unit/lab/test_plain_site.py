from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest
import yaml

from lab import session
from lab.paths import SITE_FILE, NetworkPlan
from stacks.plan.site_plan import plan_values
from tests.lab.plain_site import plain_text

_KEY = "inference-platform:site"


def site_of(text: str) -> dict[str, Any]:
    site: dict[str, Any] = yaml.safe_load(text)["config"][_KEY]
    return site


def test_a_plain_site_measures_and_certifies_nothing_and_is_else_the_checked_in_one() -> None:
    plain, checked_in = site_of(plain_text()), site_of(SITE_FILE.read_text())
    assert checked_in.keys() - plain.keys() == {"monitoring", "certificates"}
    assert {key for key in plain if plain[key] != checked_in[key]} == {"gateway", "models"}
    for model in plain["models"].values():
        del model["overrides"]["stall_s"]
        assert {"overrides": {}, **model} in [{"overrides": {}, **other} for other in checked_in["models"].values()]
    planned = plan_values(site_of(plain_text()), "plain.yaml").site
    assert (planned.gateway.port, planned.gateway.certificate_secret, planned.gateway.address) == (80, None, None)


@pytest.mark.parametrize("index", [0, 5])
def test_the_certificate_is_for_the_gateways_address_in_each_lab(index: int) -> None:
    network = NetworkPlan(index=index)
    site = site_of(session.moved(SITE_FILE.read_text(), network))
    assert site["certificates"]["names"] == [site["gateway"]["address"]]
    assert IPv4Address(site["gateway"]["address"]) in network.load_balancers
