"""What a change does to a running machine: as Talos's own code and the lab's checker have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from talos.effects import MAIN, effect_of

CHECKER = Path(__file__).parents[3] / "tools" / "talos-checker" / "change.go"
# Talos's fields of the machine that are called otherwise in a config.
CALLED = {"AcceptedCAs": "acceptedCAs", "CertSANs": "certSANs", "CA": "ca", "ControlPlane": "controlPlane"}


def live_fields(name: str) -> list[str]:
    """The fields that the checker of the lab's machines takes live."""
    block = re.search(rf"{name} *= \[\]string{{(.*?)}}", CHECKER.read_text(), re.DOTALL)
    assert block
    return re.findall(r'"(\w+)"', block[1])


def test_a_running_machine_takes_what_the_checker_of_talos_takes() -> None:
    names = [field.removeprefix("Machine") for field in live_fields("liveOfMachine")]
    assert len(names) > 15
    for name in names:
        key = CALLED.get(name, name[0].lower() + name[1:])
        assert effect_of(MAIN, ("machine", key, "x")).word != "reboot", key


@pytest.mark.parametrize(
    ("kind", "path", "word"),
    [
        (MAIN, "machine.udev.rules", "reboot"),
        (MAIN, "machine.features.diskQuotaSupport", "reboot"),
        (MAIN, "machine.features.kubePrism.port", "live"),
        (MAIN, "machine.type", "reboot"),
        (MAIN, "machine.token", "reboot"),
        (MAIN, "machine.install.image", "reboot"),
        (MAIN, "machine.install.diskSelector.serial", "reinstall"),
        (MAIN, "machine.sysctls.vm.x", "live"),
        (MAIN, "cluster.network.podSubnets", "unknown"),
        (MAIN, "cluster.apiServer.certSANs", "live"),
        (MAIN, "persist", "reboot"),
        ("BondConfig", "mtu", "live"),
        ("NetworkRuleConfig", "ingress.subnet", "live"),
        ("UserVolumeConfig", "provisioning.minSize", "unknown"),
        ("UserVolumeConfig", "provisioning.diskSelector.match", "wipe"),
        ("VolumeConfig", "encryption.provider", "wipe"),
        ("VolumeConfig", "encryption.keys.0.slot", "unknown"),
        ("RegistryAuthConfig", "password", "unknown"),
    ],
)
def test_a_change_does_what_talos_does(kind: str, path: str, word: str) -> None:
    assert effect_of(kind, tuple(path.split("."))).word == word


def test_a_volume_is_made_or_left_where_its_document_comes_or_goes() -> None:
    path = ("provisioning", "diskSelector", "match")
    words = [effect_of("UserVolumeConfig", path, state).word for state in ("added", "changed", "removed")]
    assert words == ["live", "wipe", "unknown"]
