"""A changed key of a machine shows by name, with both values and what it does, and no secret shows anywhere."""

from __future__ import annotations

import copy
import json
import re
import shutil
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml

from components.specs.etcd_backup import EtcdBackupSpec
from floor.spec import Spec
from sitectl.change.machine_changes import MachineChange, between, between_words, names
from sitectl.shell.errors import Exit
from stacks.plan.shown_machines import MASK, shown_machines
from stacks.site.loader import KEY
from stacks.site.machines import MachinesSpec
from talos.secrets import bundle as secrets
from tests.unit.sitectl.sites_to_work_on import git, make_checkout, run
from tests.unit.stacks.site_examples import every_key, plan, prod
from tests.unit.talos import talos_examples as examples

Machines = dict[str, Any]
ONE_CA = examples.authority()[0]
OTHER_CA = secrets.generate().kubernetes.certificate
# Values of keys for which those of their type would be refused: before, where one is needed, and after.
VALUES: Mapping[str, tuple[Any, Any]] = {
    r"endpoint": ("https://k8s.site.example:6443", "https://10.5.0.9:6443"),
    r"image_factory": ("https://factory.site.example", "https://other.site.example"),
    r"networks\.nodes": (["10.5.0.0/24"], ["10.5.0.0/25"]),
    r"networks\.(pods|services)": ("10.112.0.0/16", "10.113.0.0/16"),
    r"networks\.vip": ("10.5.0.9", "10.5.0.8"),
    r"hgx\.rdma": ("none", "roce"),
    r"networks\.vip_link": ("eno1", "eno2"),
    r"networks\.dns_domain": ("cluster.local", "k8s.site.example"),
    r"hgx\.(modules)": ("proprietary", "open"),
    r"hgx\.gpu_direct": ("dma-buf", "none"),
    r".*(disk_selector|selector)": ('disk.serial == "P"', 'disk.serial == "Q"'),
    r".*(min_size|max_size)": ("3TB", "4TB"),
    r".*install_disk\.size": ("<= 2TB", "<= 3TB"),
    r".*install_disk\.type": ("ssd", "nvme"),
    r"firewall\.(admins|control_planes|clients)": (["10.1.0.0/24"], ["10.2.0.0/24"]),
    r"firewall\.load_balancer_ports": ([80], [443]),
    r".*mirrors\..*\.endpoints": (["https://a.site.example"], ["https://b.site.example"]),
    r"(kernel_log|log_destination)": ("udp://10.5.0.6:6050", "tcp://10.5.0.6:6051"),
    r"discovery": ("off", "public"),
    r"resolvers": (["10.5.0.2"], ["10.5.0.3"]),
    r"cilium_manifest": ("a.yaml", "b.yaml"),
    r".*\.role": ("hgx", "worker"),
    r".*\.address": ("10.5.0.21", "10.5.0.22"),
    r".*\.(addresses)": (["10.9.0.21/24"], ["10.9.0.22/24"]),
    r".*\.hardware_addr": ("02:00:00:00:00:01", "02:00:00:00:00:02"),
    r".*\.link_aliases": ({"one": "link.driver == 'a'"}, {"one": "link.driver == 'b'"}),
    r".*\.static_hosts": ({"10.5.0.7": ["a"]}, {"10.5.0.7": ["b"]}),
    r".*\.kernel_args": (["a=1"], ["a=2"]),
    r".*\.extensions": (["siderolabs/intel-ucode"], ["siderolabs/amd-ucode"]),
    r".*\.taints": ({"site.example/k": "1:NoSchedule"}, {"site.example/k": "2:NoSchedule"}),
    r".*\.(labels|annotations)": ({"site.example/k": "1"}, {"site.example/k": "2"}),
    r".*\.kubelet_config": ({"maxPods": 64}, {"maxPods": 65}),
    r".*\.mig": ("all-1g.18gb", "all-2g.35gb"),
    r"(.*\.)?patches": (
        {"one": {"machine": {"sysctls": {"vm.x": "1"}}}},
        {"one": {"machine": {"sysctls": {"vm.x": "2"}}}},
    ),
    r".*\.provisioning\.grow": (False, True),
    r".*\.xmit_hash_policy": ("layer2", "layer3+4"),
    r".*\.routes\.0\.destination": ("10.7.0.0/16", "10.8.0.0/16"),
    r".*\.routes\.0\.(gateway|source)": ("10.5.0.1", "10.5.0.2"),
    r".*\.routes\.0\.table": (10, 11),
    r".*\.mtu": (1500, 9000),
    r".*\.bond_mode": ("802.3ad", "balance-xor"),
    r".*\.miimon_ms": (100, 50),
    r".*\.(updelay|downdelay)_ms": (200, 300),
    r".*\.min_links": (1, 2),
    r".*\.features": ({"rx-gro-hw": True}, {"rx-gro-hw": False}),
    r".*\.(rings|channels)": ({"rx": 1}, {"rx": 2}),
    r".*\.kernel_modules": (["br_netfilter"], ["nbd"]),
    r".*\.username": ("a", "b"),
    r".*\.ca": (ONE_CA, OTHER_CA),
    r"trusted_roots": ({"one": ONE_CA}, {"one": OTHER_CA}),
    r"hgx\.storage\.engine": ("v2", "v1"),
    r".*volume_type": ("disk", "directory"),
}
# A key that is a text of its own beside others of its section, which exclude each other.
INSTEAD: Mapping[str, tuple[Any, Any]] = {r".*install_disk\.device": ("/dev/sda", "/dev/sdb")}


# Keys that exclude each other: each is tried where its section has it.
SWITCHED = ("identity_token_secret", "password_secret", "username", "lock_to_state")


def keys_of(value: Any, path: tuple[str, ...], seen: set[tuple[type, str]]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and type of every key below this section, each in the first section of its kind."""
    for name, hint in get_type_hints(type(value)).items() if isinstance(value, Spec) else ():
        owner = next(kind for kind in type(value).__mro__ if name in vars(kind).get("__annotations__", {}))
        below = list(_sections(getattr(value, name), (*path, name)))
        for section, where in below:
            yield from keys_of(section, where, seen)
        given = getattr(value, name) not in (None, "") or name not in SWITCHED
        if not below and given and (owner, name) not in seen and not re.search(r"Spec|MachineKeys", str(hint)):
            seen.add((owner, name))
            yield (*path, name), hint


def every_key_of(machines: MachinesSpec) -> Iterator[tuple[tuple[str, ...], Any]]:
    seen: set[tuple[type, str]] = set()
    yield from keys_of(machines.nodes["hgx-1"], ("nodes", "hgx-1"), seen)
    yield from keys_of(machines.model_copy(update={"nodes": {}, "roles": {}}), (), seen)


def _sections(value: Any, path: tuple[str, ...]) -> Iterator[tuple[Spec, tuple[str, ...]]]:
    if isinstance(value, Spec):
        yield value, path
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _sections(inner, (*path, key))
    for place, inner in enumerate(value) if isinstance(value, tuple) else ():
        yield from _sections(inner, (*path, str(place)))


def example() -> Machines:
    """The example with every key, and with the sections that it has on no level."""
    machines = every_key()
    node = machines["nodes"]["hgx-1"]
    node["bonds"]["bond0"]["routes"] = [{"destination": "10.7.0.0/16", "gateway": "10.5.0.1"}]
    node["system_volumes"]["EPHEMERAL"]["encryption"][0]["lock_to_state"] = True
    node["volumes"] = {"whole": {"volume_type": "disk", "provisioning": {"disk_selector": "disk.rotational"}}} | {
        "scratch": node["volumes"]["scratch"]
    }
    node["bonds"]["bond0"] |= {"bond_mode": "802.3ad", "miimon_ms": 100, "updelay_ms": 200, "downdelay_ms": 200}
    machines["networks"]["vip_link"] = "eno1"
    machines["hgx"] |= {"modules": "open", "gpu_direct": "none"}
    machines["registries"]["auth"] = {
        "a.site.example": {"username": "a", "password_secret": "password"},
        "b.site.example": {"identity_token_secret": "token"},
    }
    return machines


def values_of(path: tuple[str, ...], hint: Any) -> tuple[Any, Any]:
    dotted = ".".join(path)
    for pattern, values in [*INSTEAD.items(), *VALUES.items()]:
        if re.fullmatch(pattern, dotted):
            return values
    options = [option for option in (get_args(hint) if _is_union(hint) else (hint,)) if option is not type(None)]
    kind = options[0]
    if get_origin(kind) is Literal:
        first_word, second_word, *_ = get_args(kind)
        return first_word, second_word
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return ([1], [2]) if inner is int else (["a.site.example"], ["b.site.example"])
    if get_origin(kind) is dict:
        first = {bool: (True, False), int: (1, 2)}.get(get_args(kind)[1], ("1", "2"))
        return {"one": first[0]}, {"one": first[1]}
    numbers: dict[Any, tuple[Any, Any]] = {bool: (False, True), int: (7, 8), float: (70.0, 80.0)}
    return numbers.get(kind, ("one", "two"))


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def put(machines: Machines, path: tuple[str, ...], value: Any) -> Machines:
    changed = copy.deepcopy(machines)
    section: Any = changed
    for key in path[:-1]:
        section = section[int(key)] if isinstance(section, list) else section[key]
    if any(re.fullmatch(pattern, ".".join(path)) for pattern in INSTEAD):
        section.clear()
    if value == "directory":
        # Which is on no disk.
        del section["provisioning"]
    section[path[-1]] = value
    return changed


ALL_KEYS = dict(every_key_of(MachinesSpec.model_validate(example())))


@pytest.mark.parametrize("path", ALL_KEYS, ids=".".join)
def test_a_changed_key_shows_by_name_with_both_values(path: tuple[str, ...]) -> None:
    before, after = (put(example(), path, value) for value in values_of(path, ALL_KEYS[path]))
    changes = between(*(shown_machines(plan(machines), "manifest") for machines in (before, after)))
    own = path[2:] if path[:1] == ("nodes",) else path
    shown = {re.sub(r'\["?|"?\]', ".", change.key).replace("..", ".").strip("."): change for change in changes}
    old, new = (_texts(value) for value in values_of(path, ALL_KEYS[path]))
    wanted = ".".join(own)
    by_name = [change for key, change in shown.items() if key.endswith(wanted) or f"{wanted}." in f"{key}."]
    sides = [[str(side or "false").partition(", sha256")[0] for side in (c.before, c.after)] for c in by_name]
    assert [old, new] in sides, shown
    assert all(change.before != change.after for change in by_name)


def _texts(value: Any) -> str:
    while isinstance(value, dict):
        (value,) = value.values()
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return str(int(value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if "CERTIFICATE" not in text else f"a text of {len(text) + text.count(chr(10))} characters"


def test_every_key_of_a_machine_is_among_them() -> None:
    """So that a key that is added to a site is one of the test before."""
    from stacks.site import machine, machines  # noqa: PLC0415

    declared = {
        (name, key)
        for module in (machine, machines)
        for name, spec in vars(module).items()
        if isinstance(spec, type) and issubclass(spec, Spec) and spec is not Spec
        for key in get_type_hints(spec)
    }
    tried = {path[-1] for path in ALL_KEYS} | {part for path in ALL_KEYS for part in path}
    # Snapshots of etcd are objects of the cluster, which a diff has with theirs.
    objects = {"etcd_backup", *get_type_hints(EtcdBackupSpec)}
    # A role has the keys of a node, raw volumes those of volumes.
    assert {key for _, key in declared} - tried - objects == {"raw_volumes", "roles"}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, str(key)))
    else:
        yield path, value


def test_what_differs_between_two_clusters_secrets_is_masked_and_nothing_else() -> None:
    """The audit of secrets: each leaf that another bundle or another secret of the site changes."""
    made = plan(example())
    bundles = examples.bundle(), secrets.generate()
    mine, theirs = (
        made.documents(bundle, {name: f"{word}-{name}" for name in made.secret_names}, None)
        for bundle, word in zip(bundles, ("canary", "other"), strict=True)
    )
    masked = 0
    for machine, shown in shown_machines(made, None).items():
        values, others = (dict(leaves(documents[machine])) for documents in (mine, theirs))
        for path, value in leaves(shown["documents"]):
            if values[path] == others[path]:
                assert value == values[path]
            else:
                assert str(value).startswith(MASK[:-1]), path
                masked += 1
    assert masked > 20


def test_machines_with_the_same_change_are_one_line() -> None:
    machines = prod()["cluster"]["machines"]
    changed = copy.deepcopy(machines)
    changed["roles"]["hgx"].setdefault("sysctls", {})["vm.swappiness"] = "1"
    (change,) = between(*(shown_machines(plan(side), None) for side in (machines, changed)))
    assert (names(change.machines), change.key, between_words(change)) == (
        "hgx-1..4",
        'sysctls["vm.swappiness"]',
        "set to 1",
    )
    assert names(["b-1", "hgx-4", "hgx-2", "hgx-1", "db", "a10", "a9"]) == "a9..10, b-1, db, hgx-1..2, hgx-4"


def test_of_a_long_value_the_part_that_differs_shows() -> None:
    def shown(value: Any) -> Any:
        return {"a": {"keys": {"key": value}, "documents": []}}

    def change(before: Any, after: Any) -> MachineChange:
        (only,) = between(shown(before), shown(after))
        return only

    listed = [f"10.{number}.0.0/16" for number in range(40)]
    moved = change(listed, [*listed[:20], "10.99.0.0/16", *listed[21:]])
    assert (moved.before, moved.after) == ("..., 10.20.0.0/16", "..., 10.99.0.0/16")
    long = change("x" * 200 + "1511" + "y" * 200, "x" * 200 + "9022" + "y" * 200)
    assert (long.before, long.after) == (f"...{'x' * 20}1511{'y' * 20}...", f"...{'x' * 20}9022{'y' * 20}...")
    repeated = change("a" * 200, "a" * 201)
    assert repeated.before != repeated.after
    whole = change("".join(map(str, range(200))), "".join(map(str, range(200, 400))))
    assert re.fullmatch(r"a text of [\d,]+ characters, sha256 [0-9a-f]{12}", str(whole.before))
    assert change("glpat-0123456789abcdefghij", "b").before == "(hidden, as it looks like a secret)"


CANARY = "canary-of-the-site"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference site in git, with a secret of its registry in its stack's configuration."""
    folder = make_checkout(tmp_path_factory.mktemp("rack"), sites=("prod",), copied=("__main__.py",))
    file = folder / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["inference-platform:registry-password"] = CANARY
    file.write_text(yaml.safe_dump(document))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "before")
    return folder


def change_site(folder: Path, change: Any) -> None:
    file = folder / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    change(document["config"][KEY]["cluster"]["machines"])
    file.write_text(yaml.safe_dump(document))


@pytest.mark.processes
def test_a_rendered_folder_holds_machines_and_is_compared(rack: Path, tmp_path: Path) -> None:
    assert run(rack, "render", "--out", str(tmp_path / "before")).status == Exit.OK
    original = (rack / "Pulumi.prod.yaml").read_text()
    change_site(rack, lambda machines: machines["bonds"]["bond0"].update(mtu=9100))
    change_site(rack, lambda machines: machines["roles"]["hgx"].update(udev_rules=['SUBSYSTEM=="net"']))
    try:
        assert run(rack, "render", "--out", str(tmp_path / "after")).status == Exit.OK
    finally:
        (rack / "Pulumi.prod.yaml").write_text(original)
    posted = tmp_path / "diff.md"
    result = run(rack, "diff", str(tmp_path / "before"), str(tmp_path / "after"), "--markdown", str(posted))
    assert result.status == Exit.OK, result.err
    assert re.search(r"cp-1\.\.3, hgx-1\.\.4, infra-1\.\.2  bonds\.bond0\.mtu +9000 -> 9100\n +live: ", result.out)
    assert re.search(r'hgx-1\.\.4 +udev_rules +set to SUBSYSTEM=="net"\n +reboot: ', result.out)
    text = posted.read_text()
    assert "| `cp-1..3, hgx-1..4, infra-1..2` | `bonds.bond0.mtu` | `9000` | `9100` | live: " in text
    assert "| `prod` | restarts |" in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "after/prod/program/machines/hgx-4.keys.yaml" in files
    config = list(yaml.safe_load_all((tmp_path / "after/prod/program/machines/hgx-4.yaml").read_text()))
    assert [document["mtu"] for document in config if document.get("kind") == "BondConfig"] == [9100]
    shown = result.out + "".join(path.read_text() for path in files)
    assert CANARY not in shown
    assert "password: '[secret registry-password]'" in shown


@pytest.mark.processes
def test_a_side_that_shows_no_machines_is_named(rack: Path, tmp_path: Path) -> None:
    """What an earlier program rendered: no line would read as no change."""
    for side in ("before", "after"):
        assert run(rack, "render", "--out", str(tmp_path / side)).status == Exit.OK
    shutil.rmtree(tmp_path / "before/prod/program/machines")
    posted = tmp_path / "diff.md"
    result = run(rack, "diff", str(tmp_path / "before"), str(tmp_path / "after"), "--markdown", str(posted))
    assert "machine configs are not compared" in result.out
    assert "machine configs are not compared" in posted.read_text()


@pytest.mark.processes
def test_a_plan_shows_machines_since_the_last_commit(
    rack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's preview has no part of a secret config, so it does not differ here."""
    original = (rack / "Pulumi.prod.yaml").read_text()
    change_site(rack, lambda machines: machines["nodes"]["cp-1"].update(schedulable=True))
    change_site(rack, lambda machines: machines["networks"].update(pods="10.128.0.0/14"))
    preview = tmp_path / "preview.json"
    monkeypatch.setattr("sitectl.live.engine.preview", lambda *_, **__: {"steps": []})
    try:
        asked = run(rack, "plan", "prod", "--save", str(preview))
    finally:
        (rack / "Pulumi.prod.yaml").write_text(original)
    again = run(rack, "plan", "prod", "--from", str(preview), "--refuse", "restarts")
    assert asked.status == Exit.OK, asked.err
    assert asked.out == again.out
    assert again.status == Exit.REFUSED, "what is not known counts as a restart"
    assert re.search(r"cp-1 +schedulable +false -> true", asked.out)
    assert re.search(r"networks\.pods +10\.64\.0\.0/16 -> 10\.128\.0\.0/14\n +unknown: ", asked.out)
    assert CANARY not in asked.out + preview.read_text()
    preview.write_text(json.dumps({"steps": [], "machines": [{"key": 1}]}))
    assert "machines in this preview have not the form" in run(rack, "plan", "prod", "--from", str(preview)).err


def test_another_audit_policy_is_one_row_and_a_changed_rule_its_own() -> None:
    def machine(*levels: str) -> Machines:
        policy = {"kind": "Policy", "rules": [{"level": level, "verbs": ["get"]} for level in levels]}
        server = {"auditPolicy": policy} if levels else {}
        return {"cp-1": {"keys": {}, "documents": [{"cluster": {"apiServer": {**server, "image": "x"}}}]}}

    none, first, second = machine(), machine("None", "Request"), machine("None", "Metadata")
    [row] = between(none, first)
    assert (row.key, between_words(row), row.effect) == (
        "config cluster.apiServer.auditPolicy",
        "set to a policy",
        "live",
    )
    [row] = between(first, none)
    assert between_words(row) == "no longer set (was a policy)"
    [row] = between(first, machine("Metadata", "Metadata", "None"))
    assert between_words(row) == "a policy -> another policy"
    [row] = between(first, second)
    assert (row.key, row.before, row.after) == (
        "config cluster.apiServer.auditPolicy.rules[1].level",
        "Request",
        "Metadata",
    )
