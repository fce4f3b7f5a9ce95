"""Images of own services: the same sources give the same digest, nothing else is in them, and errors have a way out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.oci_layout import OciLayout
from bundle.service_images import source_files
from stacks.facts import versions
from stacks.facts.own_images import PYTHON_SERVICES
from tests.unit.bundle.own_services import BASE_ENV, OwnServices, files_of, own_image, put_base, starts

pytestmark = pytest.mark.row("opening 14")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnServices:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return OwnServices.in_folder(tmp_path)


@pytest.mark.slow
def test_the_same_sources_have_one_digest_wherever_and_whenever_they_are(own: OwnServices, tmp_path: Path) -> None:
    digests = {name: own.build(name) for name in ("gatekeeper", "ledger", "portal")}
    other = tmp_path / "another" / "place"
    shutil.copytree(own.project, other)
    for file in other.rglob("*"):
        os.utime(file, (1, 1))
    there = OwnServices(other, replace(own.images, project=other))
    assert {name: there.build(name) for name in digests} == digests
    assert [*own.images.images.problems(replace(own_image("ledger"), digest=digests["ledger"]))] == []


@pytest.mark.slow
def test_a_change_gives_those_images_another_digest_that_have_it(own: OwnServices) -> None:
    names = ("gatekeeper", "ledger", "portal")
    before = {name: own.build(name) for name in names}
    for changed, images in {
        "services/ledger/rows.py": {"ledger"},
        "services/ledger/months.py": {"ledger", "portal"},
        "services/failure.py": {"ledger"},
        "services/migrations/env.py": {"ledger"},
        "services/portal/templates/base.html.j2": {"portal"},
        "services/gatekeeper/main.go": {"gatekeeper"},
        "services/unused.py": set[str](),
        "services/ledger/.env": set[str](),
    }.items():
        with (own.project / changed).open("a") as file:
            file.write("\n")
        after = {name: own.build(name) for name in names}
        assert {name for name in names if after[name] != before[name]} == images, changed
        before = after


@pytest.mark.slow
def test_an_image_has_the_base_its_packages_and_its_sources_and_nothing_else(own: OwnServices) -> None:
    own.build("ledger")
    base, packages, sources = own.files("ledger")
    assert set(base) == {"etc/base"}
    # Neither the script, whose first line is a path of the machine that installs it, nor what another system needs.
    assert {path for path in packages if ".dist-info/" not in path} == {
        f"app/packages/{path}" for path in ("server/__init__.py", "loops.py", "backport.py")
    }
    assert set(sources) == {
        f"app/services/{path}"
        for path in (
            "__init__.py",
            "failure.py",
            "ledger/__init__.py",
            "ledger/__main__.py",
            "ledger/migrations/versions/0001_rows.py",
            "ledger/months.py",
            "ledger/rows.py",
            "migrations/env.py",
        )
    }
    assert {*packages.values(), *sources.values()} == {0o644}
    run = own.layout("ledger").read_image()[0]["config"]
    assert run["Env"] == [*BASE_ENV, "PYTHONPATH=/app:/app/packages", "PYTHONDONTWRITEBYTECODE=1"]
    assert (run["User"], run["Entrypoint"]) == ("65532", ["python3", "-m", "services.ledger"])
    # The base's own command would come behind it.
    assert "Cmd" not in run


def test_the_gatekeeper_is_one_program_that_the_pinned_go_has_built(own: OwnServices) -> None:
    own.build("gatekeeper")
    assert own.files("gatekeeper") == [{"usr/local/bin/gatekeeper": 0o755}]
    config = own.layout("gatekeeper").read_image()[0]
    assert config["config"] == {"User": "65532", "Entrypoint": ["/usr/local/bin/gatekeeper"]}
    asked = Path(f"{own.images.go}.asked").read_text().splitlines()
    fixed = {"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOEXPERIMENT=", "GOFIPS140=off", "GO111MODULE=on"}
    assert fixed | {"GOTOOLCHAIN=go1.26.8", "-trimpath"} <= {*asked}


def test_the_pinned_go_is_new_enough_for_the_gatekeeper() -> None:
    """A go.mod that asks for a later one makes it refuse."""
    asked = re.search(r"^go (\S+)$", (ROOT / "services/gatekeeper/go.mod").read_text(), re.MULTILINE)
    assert asked
    assert [*map(int, versions.load().go.split("."))] >= [*map(int, asked[1].split("."))]


@pytest.mark.parametrize(
    ("variables", "got"),
    [
        (("PATH=/bin", "PYTHON_VERSION=3.12.4"), "; got PYTHON_VERSION=3.12.4; allowed: 3.11, "),
        (("PATH=/bin",), "; got no PYTHON_VERSION in its environment; allowed: 3.11, "),
        (None, "is no image of one platform with Python"),
    ],
)
def test_a_base_of_another_python_is_refused(own: OwnServices, variables: tuple[str, ...] | None, got: str) -> None:
    images = replace(own.images, base=put_base(own.project, variables))
    with pytest.raises(BundleError) as error:
        images.build("ledger", own_image("ledger"))
    assert got in str(error.value)
    assert "images.python of stacks/facts/versions.yaml" in error.value.problem.fix


def test_what_a_machine_lacks_is_named_with_the_way_out(own: OwnServices, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(service: str, **changes: object) -> str:
        with pytest.raises(BundleError) as error:
            replace(own.images, **changes).build(service, own_image(service))  # type: ignore[arg-type]
        assert error.value.problem.fix
        return str(error.value)

    assert "there is no /no/such/go\n  fix: install Go: " in refused("gatekeeper", go="/no/such/go")
    failing = own.project / "failing-go"
    failing.write_text("#!/bin/sh\necho 'dial tcp: lookup proxy.example: no such host' >&2\nexit 1\n")
    failing.chmod(0o755)
    assert "go cannot build the gatekeeper; got dial tcp: lookup " in refused("gatekeeper", go=str(failing))
    assert "has no services/watcher\n  fix: call this in a checkout" in refused("watcher")
    monkeypatch.setenv("PIP_FIND_LINKS", str(own.project))
    assert "pip cannot download what requirements.lock lists" in refused("ledger")
    (own.project / "requirements.lock").write_text("")
    assert "requirements.lock lacks what the services need: server\n  fix: make lock" in refused("ledger")


def test_another_content_of_a_locked_package_is_refused(own: OwnServices) -> None:
    lock = own.project / "requirements.lock"
    lock.write_text(
        lock.read_text().replace("server==1.0 \\\n    --hash=sha256:", f"server==1.0 --hash=sha256:{'0' * 64}#")
    )
    with pytest.raises(BundleError, match=r"pip cannot download what requirements\.lock lists"):
        own.build("ledger")


@pytest.mark.slow
def test_a_bundle_takes_what_was_built_and_refuses_what_is_locked_otherwise(own: OwnServices, tmp_path: Path) -> None:
    bundle, image = ImageFolder(tmp_path / "disk"), own_image("ledger")
    built = replace(image, digest=own.build("ledger"))
    bundle.take(built, own.images.images)
    assert [*bundle.problems(built)] == []
    for service, wrong in (("ledger", "index.json has sha256:"), ("portal", "missing")):
        with pytest.raises(BundleError, match=f"as locked; got {wrong}") as error:
            bundle.take(replace(own_image(service), digest=f"sha256:{'0' * 64}"), own.images.images)
        assert error.value.problem.fix.startswith("sitectl bundle services")
    shutil.rmtree(own.images.images.of(image))
    bundle.take(built, own.images.images)


@pytest.mark.processes
@pytest.mark.parametrize("service", PYTHON_SERVICES)
def test_the_sources_of_an_image_are_all_that_its_service_needs_of_a_checkout(service: str, tmp_path: Path) -> None:
    layout = OciLayout(tmp_path / "layout")
    layer = layout.add_layer(source_files(ROOT, service))
    layout.write_image({}, [layer])
    assert not [path for path in files_of(layout, 0) if not path.startswith("app/services/") or "gatekeeper" in path]
    shutil.unpack_archive(layout.blob(layer.descriptor["digest"]), tmp_path, "tar", filter="tar")
    environment = {"PYTHONPATH": str(tmp_path / "app"), "PYTHONDONTWRITEBYTECODE": "1"}
    for words in starts(service):
        started = [sys.executable, "-P", *words]
        shown = subprocess.run(started, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.strip() not in ("", "[]")
