"""Encrypted disks: what a TPM needs to seal one, and a disk that one mainboard alone opens."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from stacks.site.checks.crosschecks import warnings
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

TPM, KMS = {"kind": "tpm", "slot": 0}, {"kind": "kms", "slot": 1, "endpoint": "https://kms.site.example:4050"}
PLAIN = {f"{M}.secure_boot": False, f"{M}.system_volumes": None}
STATE = f"{M}.system_volumes.STATE.encryption"

WRONG: dict[str, Wrong] = {
    "system volume": Wrong(
        {**PLAIN, STATE: [KMS, TPM | {"slot": 2}]},
        f"{STATE}.1.kind",
        "needs secure_boot",
        {f"{M}.secure_boot": True},
    ),
    "volume of a role": Wrong(
        {**PLAIN, f"{M}.roles.worker.system_volumes.EPHEMERAL.encryption": [TPM]},
        f"{M}.roles.worker.system_volumes.EPHEMERAL.encryption.0.kind",
        "never formatted",
        {f"{M}.roles.worker.system_volumes.EPHEMERAL.encryption": [KMS]},
    ),
    "disk of Longhorn": Wrong(
        {**PLAIN, f"{M}.hgx.storage.disks.longhorn-0.encryption": [TPM]},
        f"{M}.hgx.storage.disks.longhorn-0.encryption.0.kind",
        "allowed: tpm with machines.secure_boot: true",
        {f"{M}.hgx.storage.disks.longhorn-0.encryption": None},
    ),
}


@pytest.mark.parametrize(
    ("endpoint", "key", "what"),
    [
        ("https://127.0.0.1:4050", f"{STATE}.1.endpoint", "is no address of a server"),
        ("https://10.64.0.9:4050", f"{STATE}.1.endpoint", "inside of the cluster"),
        ("grpc://10.5.0.9:4050", STATE, "does not fit"),
    ],
)
def test_the_key_server_is_one_outside_of_the_cluster_by_tls(endpoint: str, key: str, what: str) -> None:
    refused_and_fixed(Wrong({f"{STATE}.1.endpoint": endpoint}, key, what, {f"{STATE}.1": KMS}))


@pytest.mark.parametrize(
    ("keys", "key", "what"),
    [
        ([TPM, {"kind": "static", "slot": 1}], "1.passphrase_secret", "missing, and a key of kind static"),
        ([TPM, {"kind": "kms", "slot": 1}], "1.endpoint", "missing, and a key of kind kms"),
        ([TPM | {"passphrase_secret": "disk"}, KMS], "0.passphrase_secret", "is not read for a key of kind tpm"),
        ([TPM, KMS | {"pcrs": [7]}], "1.pcrs", "is not read for a key of kind kms"),
    ],
)
def test_a_key_has_what_its_kind_is_made_of_and_no_more(keys: list[Any], key: str, what: str) -> None:
    refused_and_fixed(Wrong({STATE: keys}, f"{STATE}.{key}", what, {STATE: [TPM, KMS]}))


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_tpm_seals_no_disk_of_an_unsigned_image(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


@pytest.mark.parametrize("secure_boot", [True, False])
def test_installers_are_the_signed_ones_where_a_site_boots_them(secure_boot: bool) -> None:
    keys: dict[str, Any] = {} if secure_boot else PLAIN
    machines = plan_values(changed(prod(), keys), "site.yaml").machines
    assert machines is not None
    suffix = "-secureboot" if secure_boot else ""
    assert {node.image.split("/")[1] for node in machines.nodes} == {f"metal-installer{suffix}"}


def test_a_disk_that_one_mainboard_alone_opens_is_warned_of() -> None:
    assert not [problem for problem in warnings(prod()) if "mainboard" in problem.what]
    (warning,) = [problem for problem in warnings(changed(prod(), {STATE: [TPM]})) if "mainboard" in problem.what]
    assert ".".join(warning.path) == STATE
    assert "kind: kms" in warning.fix


def test_keys_that_are_needed_before_the_config_or_lie_beside_the_disk_are_warned_of() -> None:
    def stated(change: dict[str, Any]) -> dict[str, str]:
        shown = warnings(changed(prod(), change))
        return {".".join(problem.path): problem.what for problem in shown if "encryption" in problem.path}

    static = {"kind": "static", "slot": 0, "passphrase_secret": "disk"}
    ephemeral = f"{M}.system_volumes.EPHEMERAL.encryption"
    longhorn = f"{M}.hgx.storage.disks.longhorn-0.encryption"
    assert stated({longhorn: [static]}) == {}
    assert "before the machine has read its config" in stated({STATE: [KMS]})[STATE]
    assert stated({STATE: [KMS], f"{M}.kernel_args": ["ip=eno1:dhcp"]}) == {}
    assert "in plain text on the same disk" in stated({STATE: [static]})[STATE]
    plain = stated({f"{M}.system_volumes.STATE": None, ephemeral: [static], longhorn: [static]})
    assert {path for path, what in plain.items() if "on STATE, and that is not encrypted" in what} == {
        ephemeral,
        longhorn,
    }


def test_a_single_way_to_the_api_is_warned_of() -> None:
    def stated(change: dict[str, Any]) -> list[str]:
        matching = warnings(changed(prod(), change))
        return [".".join(problem.path) for problem in matching if "VIP" in problem.what]

    assert stated({}) == []
    assert stated({f"{M}.discovery": "off"}) == [f"{M}.discovery"]
    assert stated({f"{M}.discovery": "off", f"{M}.networks.vip": None, f"{M}.networks.vip_link": None}) == []


def test_open_modules_on_hgx_boards_are_warned_of_in_production() -> None:
    def stated(change: dict[str, Any]) -> list[str]:
        return [".".join(problem.path) for problem in warnings(changed(prod(), change)) if "HGX" in problem.what]

    assert stated({}) == []
    assert stated({f"{M}.hgx.modules": "open"}) == [f"{M}.hgx.modules"]
    assert stated({f"{M}.hgx.modules": None}) == [f"{M}.hgx.modules"]
    assert stated({f"{M}.hgx.modules": "open", "purpose": "trial"}) == []
