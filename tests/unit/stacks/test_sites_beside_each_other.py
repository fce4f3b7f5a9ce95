"""Sites of one folder compared with each other, and files that were cut short."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from floor.problems import SiteError
from stacks.plan.site_plan import plan_file
from tests.unit.stacks.site_examples import ROOT
from tests.unit.stacks.wrong_sites import M, N

PROD = (ROOT / "Pulumi.prod.yaml").read_text()


def file_of(folder: Path, name: str, text: str) -> Path:
    path = folder / f"Pulumi.{name}.yaml"
    path.write_text(text)
    return path


def reported(path: Path) -> dict[str, str]:
    """What the file is refused for, by key."""
    with pytest.raises(SiteError) as caught:
        plan_file(path)
    return {problem.key: problem.what for problem in caught.value.problems}


def test_a_copied_site_is_refused_for_all_that_it_shares(tmp_path: Path) -> None:
    prod_file = file_of(tmp_path, "prod", PROD)
    refused = reported(file_of(tmp_path, "rome", PROD))
    assert refused["name"] == "is not the name of the file, rome, which is the stack's"
    assert re.fullmatch(r"10\.5\.0\.10 is also that of .*vip \(Pulumi\.prod\.yaml:\d+\)", refused[f"{N}.vip"])
    assert refused[f"{M}.endpoint"].startswith("https://10.5.0.10:6443 is also that of cluster.machines.endpoint")
    assert refused[f"{M}.nodes"].startswith("9 machines have addresses of machines of Pulumi.prod.yaml:")
    assert plan_file(prod_file).site, "a copy that is not finished does not stop the site that it was copied from"


def test_a_site_of_its_own_beside_another_is_valid(tmp_path: Path) -> None:
    file_of(tmp_path, "prod", PROD)
    own = PROD.replace("name: prod", "name: rome").replace("10.5.0.", "10.7.0.").replace("10.9.", "10.11.")
    assert plan_file(file_of(tmp_path, "rome", own)).site
    same = reported(
        file_of(
            tmp_path,
            "rome",
            own.replace("10.7.0.16", "10.5.0.16").replace("[10.7.0.0/24]", "[10.4.0.0/14]"),
        )
    )
    assert list(same) == [f"{M}.nodes.infra-1.address"]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_beside_a_site_is_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A FIFO would be waited for, and a device read without end."""
    make(tmp_path / "Pulumi.rome.yaml")
    assert plan_file(file_of(tmp_path, "prod", PROD)).site


def test_two_sites_of_one_kubeconfig_are_one_cluster(tmp_path: Path) -> None:
    keys = "cluster: {kubeconfig: k}, gateway: {port: 80}, models: {}, tenants: {}"
    text = f"config:\n  inference-platform:site: {{name: NAME, {keys}}}\n"
    file_of(tmp_path, "a", text.replace("NAME", "a"))
    assert list(reported(file_of(tmp_path, "b", text.replace("NAME", "b")))) == ["cluster.kubeconfig"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "every"), [("lab", 1), ("prod", 7), pytest.param("prod", 1, marks=pytest.mark.exhaustive)]
)
def test_a_file_cut_short_at_any_line_is_refused_or_warned_of(site: str, every: int, tmp_path: Path) -> None:
    """Down to the tenants, which come last: anything missing from there on is a tenant; nothing else refers to it."""
    lines = (ROOT / f"Pulumi.{site}.yaml").read_text().splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if line.startswith("    tenants:"))
    for count in range(last, 0, -every):
        assert reported(file_of(tmp_path, site, "".join(lines[:count])))
    whole = plan_file(file_of(tmp_path, site, "".join(lines).rstrip("\n")))
    assert whole.warnings[0].what.startswith("the last line has no end")


def test_marks_of_init_that_are_left_are_a_warning(tmp_path: Path) -> None:
    """A guess of the boot disk decides which disk is overwritten."""
    lines = PROD.splitlines(keepends=True)
    lines[20] = f"{lines[20].rstrip()}  # FILL IN: the true one\n"
    lines[30] = f"{lines[30].rstrip()}  # FILL IN: this too\n"
    (warning,) = [
        warned for warned in plan_file(file_of(tmp_path, "prod", "".join(lines))).warnings if "FILL IN" in warned.what
    ]
    assert (warning.what, warning.line) == ("2 values still marked FILL IN: lines 21, 31", 21)
    assert "FILL IN" not in str(plan_file(file_of(tmp_path, "prod", PROD)).warnings)


def test_two_sites_announce_no_address_of_each_other(tmp_path: Path) -> None:
    by_bgp = "{announced_by: cilium_bgp, pool: [POOL], bgp: {local_asn: 64512, peers: {tor: ROUTER}}}"
    texts = {}
    for name, third in (("prod", "5"), ("rome", "4")):
        site = yaml.safe_load(PROD.replace("10.5.0.", f"10.{third}.0.").replace("name: prod", f"name: {name}"))
        router = f"{{address: 10.{third}.0.1, asn: 64700}}"
        pool = {"prod": "10.7.0.0/28, 10.8.0.1", "rome": "10.7.0.9-10.7.0.40, 10.8.0.2"}[name]
        section = yaml.safe_load(by_bgp.replace("ROUTER", router).replace("POOL", pool))
        site["config"]["inference-platform:site"]["addresses"] = section
        for balancer in ("gateway", "portal"):
            site["config"]["inference-platform:site"][balancer].pop("address")
        texts[name] = yaml.safe_dump(site)
    file_of(tmp_path, "prod", texts["prod"])
    refused = reported(file_of(tmp_path, "rome", texts["rome"]))
    assert list(refused) == ["addresses.pool.0"]
    assert refused["addresses.pool.0"].startswith(
        "10.7.0.9-10.7.0.40 has addresses of 10.7.0.0-10.7.0.15, addresses.pool.0 (Pulumi.prod.yaml:"
    )


def test_sites_with_bgp_and_without_have_no_manifest_in_common(tmp_path: Path) -> None:
    """As where one is a copy of the annotated site, which names the file."""
    site = yaml.safe_load(PROD.replace("10.5.0.", "10.4.0.").replace("name: prod", "name: rome"))
    values = site["config"]["inference-platform:site"]
    router = {"address": "10.4.0.1", "asn": 64700}
    bgp = {"local_asn": 64512, "peers": {"tor": router}}
    values["addresses"] = {"announced_by": "cilium_bgp", "pool": ["10.7.0.0/28"], "bgp": bgp}
    for balancer in ("gateway", "portal"):
        values[balancer].pop("address")
    file_of(tmp_path, "prod", PROD)
    key = "cluster.machines.cilium_manifest"
    shared = reported(file_of(tmp_path, "rome", yaml.safe_dump(site)))
    assert shared == {key: "is the file of Pulumi.prod.yaml too, which takes Cilium without BGP"}
    assert reported(tmp_path / "Pulumi.prod.yaml") == {
        key: "is the file of Pulumi.rome.yaml too, which takes Cilium with BGP"
    }
    values["monitoring"]["pod_network"] = "measured"
    file_of(tmp_path, "rome", yaml.safe_dump(site))
    assert reported(tmp_path / "Pulumi.prod.yaml") == {
        key: "is the file of Pulumi.rome.yaml too, which takes Cilium with BGP and with metrics"
    }
    values["cluster"]["machines"].pop("cilium_manifest")
    assert plan_file(file_of(tmp_path, "rome", yaml.safe_dump(site)))
    assert plan_file(tmp_path / "Pulumi.prod.yaml")
