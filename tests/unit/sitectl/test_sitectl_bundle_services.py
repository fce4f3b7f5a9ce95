"""`bundle services`: images of own services are built, locked, pushed, and listed beside what comes from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle.supplies import BUILT
from sitectl.shell.errors import Exit
from stacks.facts import versions
from stacks.facts.image_lock import FILE
from tests.unit.bundle.own_services import BASE, BASE_ENV, OwnServices, put_base
from tests.unit.bundle.stand_in_crane import StandInCrane, digest_of
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = pytest.mark.row("opening 14")

PINS = versions.load().images


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnServices:
    """Without a lock, beside a crane that knows no image."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    StandInCrane.in_folder(tmp_path)
    own = OwnServices.in_folder(tmp_path)
    for name in ("Pulumi.yaml", "__main__.py"):
        (own.project / name).touch()
    return own


def programs(own: OwnServices) -> tuple[str, ...]:
    return ("--go", own.images.go, "--crane", str(own.project.parent / "crane"))


def locked(own: OwnServices) -> list[str]:
    return (own.project / FILE).read_text().splitlines()


@pytest.mark.slow
def test_what_is_built_is_locked_and_a_change_takes_the_place_of_its_line_alone(own: OwnServices) -> None:
    (own.project / FILE).write_text(f"{PINS.vllm}@{digest_of('vllm')}\n{BASE}@{own.images.base.digest}\n")
    first = run(own.project, "bundle", "services", "gatekeeper", "ledger", *programs(own))
    assert first.status == Exit.OK, first.err
    built, (_, *others) = first.out.splitlines()[:2], sorted(locked(own), key=lambda line: "vllm" not in line)
    assert sorted(others) == sorted([f"{BASE}@{own.images.base.digest}", *built])
    assert [line.partition("@")[0] for line in built] == [PINS.gatekeeper, PINS.ledger]
    assert first.out.splitlines()[2:] == ["commit images.lock"]
    again = run(own.project, "bundle", "services", "gatekeeper", "ledger", *programs(own))
    assert again.out.splitlines() == [*built, "images.lock: as before"]
    (own.project / "services" / "gatekeeper" / "main.go").write_text("package other\n")
    assert run(own.project, "bundle", "services", "gatekeeper", *programs(own)).status == Exit.OK
    assert built[0] not in locked(own)
    assert {line.partition("@")[0] for line in locked(own)} == {PINS.vllm, str(BASE), PINS.gatekeeper, PINS.ledger}
    assert {*others} - {*locked(own)} == {built[0]}


def test_a_push_prints_the_pins_of_a_site_whose_nodes_pull_from_there(own: OwnServices) -> None:
    words = ("bundle", "services", "gatekeeper", "--to", "registry.example.com/inference", *programs(own))
    result = run(own.project, *words)
    image = "registry.example.com/inference/gatekeeper:0.1.0"
    assert result.out.splitlines()[-1].startswith(f"  gatekeeper: {image}@sha256:")
    (pushed,) = StandInCrane(own.project.parent / "crane").asked("push")
    assert pushed[-2:] == [str(own.project / BUILT / PINS.gatekeeper.replace(":", "/")), image]
    assert [line.partition("@")[0] for line in locked(own)] == [PINS.gatekeeper]


def test_what_goes_into_a_mirror_is_what_the_lock_has(own: OwnServices) -> None:
    words = ("bundle", "services", "gatekeeper", "--to", "registry.site.example/inference-platform", *programs(own))
    before = run(own.project, *words).out.splitlines()
    assert before[1:] == ["commit images.lock"], "its pins stay as they are"
    (own.project / "services" / "gatekeeper" / "main.go").write_text("package other\n")
    after = run(own.project, *words).out.splitlines()
    assert before[0] != after[0]
    assert [line.partition("@")[2] for line in locked(own)] == [after[0].partition("@")[2]]


def test_a_base_that_no_registry_has_and_a_service_that_is_none_are_errors(own: OwnServices) -> None:
    wrong = run(own.project, "bundle", "services", "ledger", *programs(own))
    assert f"crane finds no {BASE}" in wrong.err
    assert f"crane finds no mirror.example/{BASE.path}" in (
        run(own.project, "bundle", "services", "ledger", "--from", "mirror.example", *programs(own)).err
    )
    unknown = run(own.project, "bundle", "services", "weights", *programs(own))
    assert (unknown.status, "watcher" in unknown.err) == (Exit.USAGE, True)
    assert not (own.project / FILE).exists()


def test_the_base_of_another_python_locks_nothing(own: OwnServices) -> None:
    base = put_base(own.project, (*BASE_ENV[:1], "PYTHON_VERSION=3.13.1"))
    (own.project / FILE).write_text(f"{base}\n")
    wrong = run(own.project, "bundle", "services", "watcher", "ledger", *programs(own))
    assert "has another Python\n  got: PYTHON_VERSION=3.13.1\n  allowed: 3.11, " in wrong.err
    assert locked(own) == [str(base)]


@pytest.mark.processes
def test_a_site_lists_its_own_images_and_their_base(tmp_path: Path) -> None:
    project = make_checkout(tmp_path / "own", sites=("prod",))
    listed = {row["image"]: row["used_by"] for row in run(project, "bundle", "list", "prod", "--json").data["images"]}
    assert listed[PINS.python] == ["base of directory, ledger, portal"]
    assert {PINS.gatekeeper, PINS.directory} <= {*listed}
    reported = "images of own services: directory, gatekeeper, ledger, portal (sitectl bundle services)"
    assert reported in run(project, "validate", "prod").out
