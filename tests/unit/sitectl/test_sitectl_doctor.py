"""`doctor`: what this machine lacks for work on sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitectl.commands.doctor import Check, OwnMachine, checks
from sitectl.shell.errors import Exit
from stacks.facts import versions
from tests.unit.sitectl.sites_to_work_on import edit, make_checkout, run

pytestmark = pytest.mark.row("opening 2", "C.06")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout that a test may change, with no site yet."""
    return make_checkout(tmp_path / "own", sites=())


@pytest.mark.slow
def test_doctor_tells_what_is_missing_and_how_to_get_it(checkout_folder: Path, tmp_path: Path) -> None:
    """Everything is missing on a machine without programs; nothing of that is an error for work without a cluster."""
    bare = OwnMachine(environment={"PULUMI_HOME": str(tmp_path)}, which=lambda _: None, say=lambda _: "")
    by_name = {check.name: check for check in checks(checkout_folder, bare)}
    for name in ("git", "pulumi", "plugin kubernetes", "plugin command", "kubectl", "CRD bundle"):
        notes = [check for check in checks(checkout_folder, bare) if check.name == name and check.state == "note"]
        assert notes, name
        assert notes[0].fix
    assert by_name["site prod"].state == "ok"
    assert [check for check in by_name.values() if check.state == "bad"] == []


def test_doctor_names_a_clusters_file_that_is_not_there(own: Path) -> None:
    run(own, "init", "berlin")
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")
    by_name = {check.name: check for check in checks(own, bare)}
    assert (by_name["cluster of berlin"].state, by_name["cluster of berlin"].fix) == (
        "note",
        "put the kubeconfig of berlin there",
    )


def test_doctor_knows_crane_where_images_are_locked(own: Path) -> None:
    run(own, "init", "berlin")
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")
    assert "crane" not in {check.name for check in checks(own, bare)}
    edit(own, "berlin", images={"locked": True})
    crane = {check.name: check for check in checks(own, bare)}["crane"]
    assert (crane.state, crane.fix.split(": ")[0]) == ("note", "install crane")


def test_doctor_asks_for_talosctl_where_a_site_has_machines(own: Path) -> None:
    run(own, "init", "berlin")
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")
    assert "talosctl" not in {check.name for check in checks(own, bare)}
    assert run(own, "init", "rack", "--machines", "3+6", "--network", "10.1.0.0/24").status == Exit.OK
    missing = {check.name: check for check in checks(own, bare)}["talosctl"]
    assert (missing.state, missing.fix.split(": ")[0]) == ("note", f"install talosctl {versions.load().talos}")
    there = OwnMachine(environment={}, which=str, say=lambda _: "Client:\nTalos v1.13.9\n")
    assert {check.name: check for check in checks(own, there)}["talosctl"].result == "Talos v1.13.9"


def test_doctor_names_the_pod_network_of_a_site_of_machines(own: Path) -> None:
    """Without it `up` ends; doctor, which the way from the rack begins with, looked at the CRDs alone."""
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")
    assert run(own, "init", "rack", "--machines", "3+6", "--network", "10.1.0.0/24").status == Exit.OK
    pod_network = {check.name: check for check in checks(own, bare)}["pod network of rack"]
    assert (pod_network.state, pod_network.fix) == ("note", "python -m sitectl bundle rack")
    manifest = own / ".bundle" / "cilium" / "cilium.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("another one")
    assert {check.name: check for check in checks(own, bare)}["pod network of rack"].state == "note"


def test_doctor_refuses_a_broken_site(own: Path) -> None:
    run(own, "init", "berlin")
    edit(own, "berlin", gateway={"port": 1})
    result = run(own, "doctor")
    assert result.status == Exit.REFUSED
    assert "fix: python -m sitectl validate berlin" in result.out


def test_doctor_looks_at_the_charts_of_a_folder(tmp_path: Path) -> None:
    """Or helm's error in `up` is the first to name a missing one."""
    own = make_checkout(tmp_path / "own", sites=["prod"])
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")

    def charts() -> Check | None:
        return next((check for check in checks(own, bare) if check.name == "charts of prod"), None)

    assert charts() is None, "a registry has them"
    edit(own, "prod", charts={"mirror": "mirrored"})
    missing = charts()
    assert missing
    assert missing.state == "note"
    assert missing.fix.startswith("python -m sitectl bundle prod --charts")
    names = [f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz" for pin in versions.load().charts.values()]
    (own / "mirrored").mkdir()
    for name in names:
        (own / "mirrored" / name).write_text("packed")
    assert (charts() or missing).state == "ok"
    (own / "charts.sha256").write_text(f"{'0' * 64}  mirrored/{names[0]}\n")
    other = charts()
    assert other
    assert other.result.startswith(f"mirrored/{names[0]} missing or not as locked")
    (own / "charts.sha256").write_text("no digest\n")
    spoiled = charts()
    assert spoiled
    assert (spoiled.state, spoiled.result.partition("; ")[0]) == ("bad", "charts.sha256:1: not a locked chart")
