"""Addresses of labs on one machine: all inside the test-bed range, none shared."""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.paths import Lab, NetworkPlan

PLANS = [NetworkPlan(index=index) for index in range(8)]


def test_labs_share_no_address() -> None:
    bed = IPv4Network("198.18.0.0/15")
    for plan in PLANS:
        assert plan.whole.subnet_of(bed)
        assert not any(plan.whole.overlaps(other.whole) for other in PLANS if other.index != plan.index)


@pytest.mark.parametrize("plan", PLANS[:1] + PLANS[-1:])
def test_parts_of_a_lab_do_not_overlap(plan: NetworkPlan) -> None:
    parts = [plan.pods, plan.services, plan.load_balancers, plan.nodes, plan.uplink]
    for part in parts:
        assert part.subnet_of(plan.whole)
        assert not any(part.overlaps(other) for other in parts if other is not part)
    assert plan.bridge_address in plan.pods
    assert plan.dns_address in plan.services
    assert plan.bridge_address not in plan.node_pods(0)
    assert plan.node_address(0) in plan.nodes
    assert plan.node_address(199) in plan.nodes


@pytest.mark.parametrize("index", ["8", "-1", "two"])
def test_index_out_of_range_is_reported(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_INDEX", index)
    with pytest.raises(LabError, match=f"LAB_INDEX is '{index}'; allowed: 0, 1, 2, 3, 4, 5, 6, 7"):
        Lab.from_environment()


NOBODY = 65534


def readable_by_nobody(folder: Path) -> bytes:
    """Checked from inside, so that the folders above, which are not the lab's, have no effect."""
    find = ["find", ".", "-readable"]
    return subprocess.run(find, cwd=folder, user=NOBODY, extra_groups=[], capture_output=True, check=False).stdout


@pytest.mark.skipif(Path("/proc/self").stat().st_uid != 0, reason="only root can become another user")
def test_another_user_reads_nothing_below_the_labs_folder(tmp_path: Path) -> None:
    lab = Lab(home=tmp_path / "lab", cache=tmp_path)
    for folder in (lab.home, lab.pods):
        folder.mkdir()
        folder.chmod(0o755)
    (lab.pods / "token").write_text("secret")
    look = ["find", ".", "-readable"]
    for folder in (lab.home, lab.pods):
        seen = subprocess.run(
            look, cwd=folder, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
        )
        assert b"token" in seen.stdout, "open folders are not seen, so this shows nothing"
    lab.make_folders()
    for folder in (lab.home, lab.pods, lab.logs, lab.volumes, lab.pulumi):
        (folder / "token").write_text("secret")
        seen = subprocess.run(
            look, cwd=folder, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
        )
        assert seen.stdout == b"", folder
