"""`cluster.machines`: what a site may say, what becomes of it, and every mistake at once, with key and fix."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from stacks.site.checks import crosschecks
from tests.unit.stacks.site_examples import configs, every_key, plan, prod

pytestmark = pytest.mark.row("C.01", "opening 13")

Machines = dict[str, Any]


def errors(change: Callable[[Machines], object]) -> str:
    site = prod()
    change(site["cluster"]["machines"])
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    return str(caught.value)


def document(config: str, kind: str, name: str = "") -> Any:
    of_kind = [entry for entry in yaml.safe_load_all(config) if entry.get("kind", "v1alpha1") == kind]
    return next(entry for entry in of_kind if not name or entry.get("name") == name)


def test_a_cluster_is_one_that_exists_or_machines() -> None:
    for cluster, got in (({}, "neither"), ({**prod()["cluster"], "kubeconfig": "kubeconfig"}, "both")):
        with pytest.raises(SiteError, match=rf"site\.yaml:cluster: has {got} of kubeconfig and machines; allowed: one"):
            plan_values({**prod(), "cluster": cluster}, "site.yaml")
    existing = {**prod(), "cluster": {"kubeconfig": "kubeconfig"}, "addresses": {}}
    assert plan_values(existing, "site.yaml").site.cluster.machines is None


MISTAKES: list[tuple[str, Callable[[Machines], object], str]] = [
    (
        "typo",
        lambda m: m["nodes"]["hgx-1"].update(adress="x"),
        "nodes.hgx-1.adress: unknown key; did you mean 'address'",
    ),
    (
        "typo in a role",
        lambda m: m["roles"]["hgx"].update(link={}),
        "roles.hgx.link: unknown key; did you mean 'links'",
    ),
    ("typo in a bond", lambda m: m["bonds"]["bond0"].update(lacp_rat="fast"), "bond0.lacp_rat: unknown key; did you"),
    ("typo in a route", lambda m: m["bonds"]["bond0"]["routes"][0].update(gatway=""), "did you mean 'gateway'"),
    ("name", lambda m: m["nodes"].update({"Bad.Name": m["nodes"]["cp-1"]}), "Bad.Name: this name is not 1 to 40"),
    ("twice", lambda m: m["nodes"]["hgx-2"].update(address="10.5.0.21"), "10.5.0.21 is also that of hgx-1"),
    ("outside", lambda m: m["nodes"]["hgx-2"].update(address="10.6.0.1"), "outside of networks.nodes (10.5.0.0/24)"),
    (
        "no address",
        lambda m: m["nodes"]["hgx-2"].update(address="hgx-2"),
        "hgx-2.address: is no address; got 'hgx-2'; allowed: an address such",
    ),
    ("overlap", lambda m: m["networks"].update(pods="10.80.0.0/15"), "overlaps pods (10.80.0.0/15)\n    fix: move one"),
    ("few pods", lambda m: m["networks"].update(pods="10.64.0.0/23"), "has no /24 for each of 9 nodes"),
    ("vip taken", lambda m: m["nodes"]["cp-1"].update(address="10.5.0.10"), "10.5.0.10 is the address of cp-1"),
    ("vip nowhere", lambda m: m["networks"].pop("vip_link"), "networks.vip_link: missing"),
    (
        "endpoint",
        lambda m: m.update(endpoint="10.5.0.10"),
        "endpoint: is no address of a Kubernetes API; got '10.5.0.10'; allowed: https://HOST:PORT",
    ),
    ("not the vip", lambda m: m.update(endpoint="https://10.5.0.9:6443"), "10.5.0.9 is not networks.vip (10.5.0.10)"),
    ("no leader", lambda m: [m["nodes"].pop(f"cp-{n}") for n in (1, 2, 3)], "no control plane; allowed: one or more"),
    ("schedulable", lambda m: m["nodes"]["hgx-1"].update(schedulable=True), "nodes.hgx-1.schedulable: is for control"),
    ("bond mode", lambda m: m["bonds"]["bond0"].pop("bond_mode"), "cluster.machines.bonds.bond0.bond_mode: missing"),
    (
        "bond timers",
        lambda m: m["bonds"]["bond0"].pop("miimon_ms"),
        "bonds.bond0.miimon_ms: miimon_ms must be given for an 802.3ad bond",
    ),
    (
        "disk",
        lambda m: m["roles"]["hgx"].pop("install_disk"),
        "cluster.machines.roles.hgx.install_disk: names no disk (hgx-1, hgx-2, hgx-3, hgx-4)",
    ),
    (
        "selector",
        lambda m: m["hgx"]["storage"]["disks"]["longhorn-0"].update(selector="disk.sise > 1"),
        "disks.longhorn-0.selector: names the field disk.sise, which does not exist; did you mean size?",
    ),
    (
        "profile",
        lambda m: m["hgx"].update(gpu_direct="dma-buf", rdma="roce"),
        "GPUDirect over dma-buf needs NVIDIA's open",
    ),
    ("factory", lambda m: m.update(image_factory="ftp://x"), "image_factory: image factory address: got ftp://x"),
    (
        "patch",
        lambda m: m.update(patches={"bad": {"machine": {"udev": None}}}),
        "cluster.machines.patches.bad: null changes nothing",
    ),
]


@pytest.mark.parametrize(
    ("change", "refusal"), [mistake[1:] for mistake in MISTAKES], ids=[mistake[0] for mistake in MISTAKES]
)
def test_a_mistake_is_reported_with_key_and_fix(change: Callable[[Machines], object], refusal: str) -> None:
    reported = errors(change)
    assert refusal in reported
    assert "site.yaml:cluster.machines" in reported


def test_mistakes_of_keys_and_between_keys_are_reported_together() -> None:
    def change(machines: Machines) -> None:
        machines["nodes"]["hgx-1"]["rol"] = "hgx"
        machines["nodes"]["hgx-2"]["address"] = "10.5.0.21"
        machines["parallel"] = 0

    reported = errors(change)
    assert "3 errors in the site" in reported
    for refusal in (
        "did you mean 'role'",
        "is also that of hgx-1",
        "parallel: out of range; got 0; allowed: a whole number of at least 1",
    ):
        assert refusal in reported


def test_what_works_and_is_not_wise_is_a_warning() -> None:
    site = prod()
    machines = site["cluster"]["machines"]
    assert crosschecks.warnings(site) == []
    del machines["nodes"]["cp-3"]
    machines["endpoint"] = "https://10.5.0.11:6443"
    del machines["networks"]["vip"], machines["networks"]["vip_link"]
    even, single = crosschecks.warnings(site)
    assert (even.key, single.key) == ("cluster.machines.nodes", "cluster.machines.endpoint")
    assert "2 control planes (cp-1, cp-2) survive no more failures than 1" in even.what
    assert "is the address of one of 2 control planes, and fails with it" in single.what
    assert plan_values(site, "site.yaml").site, "a warning refuses nothing"


def test_a_site_whose_gpus_are_all_dead_is_warned() -> None:
    site = prod()
    for name in ("hgx-1", "hgx-2", "hgx-3", "hgx-4"):
        assert crosschecks.warnings(site) == []
        site["cluster"]["machines"]["nodes"][name]["dead"] = True
    (gone,) = crosschecks.warnings(site)
    assert "every node with GPUs is dead (hgx-1, hgx-2, hgx-3, hgx-4), so no model runs" in gone.what


def test_a_site_without_a_way_out_is_warned_of_a_clock_outside() -> None:
    """Talos asks a public server by itself, and etcd waits for the time."""
    site = prod()
    machines = site["cluster"]["machines"]
    del machines["time_servers"]
    machines["registries"] = {"mirrors": {"*": {"endpoints": ["https://registry.site.example"]}}}
    assert crosschecks.warnings(site) == []
    machines["registries"]["mirrors"]["*"]["skip_fallback"] = True
    (clock,) = crosschecks.warnings(site)
    assert clock.key == "cluster.machines.registries.mirrors.*.skip_fallback"
    assert "time.cloudflare.com" in clock.what and "time_servers" in clock.fix
    machines["time_servers"] = ["ntp.site.example"]
    assert crosschecks.warnings(site) == []


def test_what_needs_no_gpu_needs_a_place() -> None:
    def without(machines: Machines) -> None:
        for name in ("infra-1", "infra-2"):
            del machines["nodes"][name]

    assert "site.yaml:cluster.machines.nodes: no node takes pods that need no GPU" in errors(without)
    site = prod()
    without(site["cluster"]["machines"])
    site["cluster"]["machines"]["nodes"]["cp-1"]["schedulable"] = True
    assert plan_values(site, "site.yaml").site


def test_the_more_exact_place_wins_key_by_key() -> None:
    machines = every_key()
    machines |= {"sysctls": {"vm.swappiness": "60", "kernel.panic": "10"}, "labels": {"site.example/all": "yes"}}
    machines["roles"]["hgx"] = {"sysctls": {"vm.swappiness": "30"}, "bonds": {"bond0": {"mtu": 9000}}}
    config = configs(machines)["hgx-1"]
    base = document(config, "v1alpha1")["machine"]
    assert base["sysctls"]["vm.swappiness"] == "1"
    assert base["sysctls"]["kernel.panic"] == "10"
    assert base["nodeLabels"]["site.example/all"] == "yes"
    bond = document(config, "BondConfig")
    assert (bond["mtu"], bond["links"]) == (9000, ["eno1", "eno2"])
    assert bond["addresses"] == [{"address": "10.5.0.21/24"}], "the node's own address, with its network's prefix"


def test_what_a_machine_sets_is_in_its_config() -> None:
    own = every_key()["nodes"]["hgx-1"]
    base = document(configs(every_key())["hgx-1"], "v1alpha1")["machine"]
    places = {"labels": "nodeLabels", "annotations": "nodeAnnotations", "taints": "nodeTaints"}
    for key in ("labels", "annotations", "taints", "sysctls", "sysfs"):
        assert own[key].items() <= base[places.get(key, key)].items(), key
    assert own["kubelet_config"].items() <= base["kubelet"]["extraConfig"].items()
    assert {*own["udev_rules"]} <= {*base["udev"]["rules"]}
    assert {*own["kernel_modules"]} <= {module["name"] for module in base["kernel"]["modules"]}
    assert {*own["cert_sans"]} <= {*base["certSANs"]}


def test_order_means_nothing() -> None:
    machines = every_key()
    shuffled = yaml.safe_load(yaml.safe_dump(machines))
    for _ in range(3):
        pairs = list(shuffled["nodes"].items())
        random.Random(7).shuffle(pairs)  # noqa: S311
        shuffled["nodes"] = dict(reversed(pairs))
        assert configs(shuffled) == configs(machines)
    assert [node.name for node in plan(shuffled).nodes] == ["cp-1", "hgx-1"]


def test_secrets_of_the_site_are_named_and_never_written_down() -> None:
    made = plan(every_key())
    assert made.secret_names == ("passphrase", "token")
    reported = configs(every_key())
    assert "canary-passphrase" in reported["hgx-1"]
    assert "canary-token" in reported["cp-1"]
    assert "canary" not in repr(made)


def test_an_image_is_of_the_nodes_own_schematic() -> None:
    made = {node.name: node for node in plan(every_key()).nodes}
    assert made["hgx-1"].image.startswith(f"factory.site.example/metal-installer/{made['hgx-1'].schematic.id}:v")
    assert made["hgx-1"].schematic.kernel_args == ("console=ttyS1",)
    assert "siderolabs/nonfree-kmod-nvidia-lts" in made["hgx-1"].schematic.extensions
    assert made["cp-1"].schematic.extensions == ()


def test_some_control_planes_may_take_pods_and_others_not() -> None:
    machines = prod()["cluster"]["machines"]
    machines["nodes"]["cp-1"]["schedulable"] = True
    made = configs(machines)
    taints = {name: document(made[name], "v1alpha1")["machine"].get("nodeTaints") for name in ("cp-1", "cp-2")}
    open_for_clients = ["name: load-balancers" in made[name] for name in ("cp-1", "cp-2")]
    assert open_for_clients == [True, False], "the gateway may run on cp-1"
    assert taints["cp-1"] is None
    assert taints["cp-2"] == {"node-role.kubernetes.io/control-plane": ":NoSchedule"}
