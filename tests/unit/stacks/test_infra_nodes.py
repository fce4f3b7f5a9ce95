"""Machines without GPUs: whether proxies and pickers have room there, also with one of them away."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.infra_nodes import InfraNode, InfraPod, left_out, lost_without_room
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("002.12")

WORKER = "cluster.machines.roles.worker"
TWO = [InfraNode(name=f"infra-{number}", cores=8, gib=32) for number in (1, 2)]


def pickers(count: int, cores: float = 4, gib: float = 8) -> list[InfraPod]:
    return [InfraPod(name="picker of a", cores=cores, gib=gib)] * count


def test_pods_fit_as_a_scheduler_counts_them() -> None:
    """By cores and by memory, on one machine each: two machines of 8 cores hold four pickers of 4 cores."""
    assert left_out(TWO, pickers(4)) == []
    assert left_out(TWO, pickers(5)) == pickers(1)
    assert left_out(TWO, pickers(1, cores=9)) == pickers(1, cores=9)
    assert left_out(TWO, pickers(3, cores=1, gib=20)) == pickers(1, cores=1, gib=20)


def test_with_a_machine_away_the_others_take_what_it_had() -> None:
    assert lost_without_room(TWO, pickers(2)) == {}
    assert lost_without_room(TWO, pickers(3)) == {"infra-1": pickers(1), "infra-2": pickers(1)}
    assert lost_without_room(TWO[:1], pickers(1)) == {"infra-1": pickers(1)}


def sized(**sizes: int) -> dict[str, Any]:
    """The reference site, which requests 2 x 4 + 2 x 2 + 3 x 1 cores and 2 x 8 + 2 x 4 + 3 x 0.5 GiB."""
    return changed(prod(), {f"{WORKER}.{key}": value for key, value in sizes.items()})


def test_the_reference_sites_machines_hold_them_also_with_one_away() -> None:
    line = "15 cores and 25.5 GiB for proxies and pickers fit on 2 machines with 60 cores and 248 GiB beside their"
    assert f"CPU nodes   {line} systems, also with one away" in plan_values(prod(), "site.yaml").placement_text


def test_a_site_whose_pickers_have_no_room_is_refused() -> None:
    """Of 4 cores the system takes 2: no picker of 4 or proxy beside a picker of 2 has room."""
    with pytest.raises(SiteError) as caught:
        plan_values(sized(cores=4), "site.yaml")
    (problem,) = caught.value.problems
    assert problem.key == WORKER
    assert "2 x picker of glm-5-1, 3 x proxy find no room: 15 cores and 25.5 GiB are requested" in problem.what
    assert problem.got == "2 machines with 4 cores and 248 GiB beside their systems"


def test_a_site_that_a_machine_on_its_way_up_leaves_without_pickers_is_warned() -> None:
    """14 cores are 12 beside the system: enough for all but the proxies while the other machine is away."""
    warned = {warning.key: warning.what for warning in plan_values(sized(cores=14), "site.yaml").warnings}
    assert warned["gateway.replicas"].startswith("while infra-1 is away, 3 x proxy find no room: 15 cores and")
    warned = {warning.key: warning.what for warning in plan_values(sized(cores=13), "site.yaml").warnings}
    assert warned[WORKER].startswith("while infra-1 is away, 1 x picker of qwen3-32b, 2 x proxy find no")
    warned = {warning.key: warning.what for warning in plan_values(sized(cores=17), "site.yaml").warnings}
    assert not {"gateway.replicas", WORKER} & warned.keys()


def test_machines_of_no_stated_size_are_not_judged() -> None:
    values = changed(prod(), {f"{WORKER}.cores": None})
    assert "cores and memory_gib of the machines without GPUs are not set" in plan_values(values, "s").placement_text
