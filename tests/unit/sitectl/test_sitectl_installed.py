"""`pip install .`: the wheel holds what the program reads, and the installed command works far from any checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacks.facts import catalogue
from tests import documented
from tests.unit.sitectl.sites_to_work_on import ROOT

pytestmark = pytest.mark.processes

PACKAGES = (
    "bundle",
    "components",
    "definitions",
    "floor",
    "manifests",
    "policy",
    "services",
    "sitectl",
    "stacks",
    "talos",
)


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What the installed command printed."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip install .` builds it, by the build backend of the environment: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *offline, "-w", str(folder), str(ROOT)], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made as the page says, but without network: build backend and dependencies are those of the tests."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "sites" / ".venv"
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
    variables = os.environ | offline | {"HOME": str(home), "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
    for line in (
        documented.shell("python3 -m venv ~/sites/.venv"),
        f"echo {site.getsitepackages()[0]} > $(echo {folder}/lib/python3.*/site-packages)/dependencies.pth",
        documented.shell("~/sites/.venv/bin/pip install ."),
        documented.shell("cp Pulumi.yaml __main__.py ~/sites/"),
    ):
        subprocess.run(["bash", "-ec", line], cwd=ROOT, env=variables, check=True)
    return folder


@pytest.fixture
def project(environment: Path, tmp_path: Path) -> Path:
    """A user's folder: what the page copies there, and a site."""
    folder = shutil.copytree(environment.parent, tmp_path / "sites", ignore=shutil.ignore_patterns(".venv"))
    shutil.copy(ROOT / "Pulumi.lab.yaml", folder)
    assert {path.name for path in folder.iterdir()} == {"Pulumi.yaml", "__main__.py", "Pulumi.lab.yaml"}
    return folder


def sitectl(environment: Path, folder: Path, *words: str) -> CommandResult:
    """The installed command, found on PATH, where nothing leads to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SITECTL_CALLED_AS")}
    variables = kept | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    # By bash, which starts it by its path on PATH as a user's shell does.
    done = subprocess.run(
        ["bash", "-c", 'sitectl "$@"', "-", *words], cwd=folder, env=variables, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert str(ROOT) not in done.stdout + done.stderr
    assert "python -m sitectl" not in done.stdout + done.stderr
    return CommandResult(status=done.returncode, out=done.stdout, err=done.stderr)


def ours(*folders: str) -> set[str]:
    """The files of the checkout below these folders."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def test_the_wheel_holds_every_file_of_the_packages_and_the_pages(wheel: Path) -> None:
    expected = ours(*PACKAGES) | {f"sitectl/{page}" for page in ours("docs")}
    assert {"stacks/importing/harmless-keys.txt", "talos/documents/fields.yaml", "sitectl/docs/sitectl.md"} <= expected
    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops - set(PACKAGES) == {"inference_platform-0.1.0.dist-info"}


def test_building_leaves_nothing_in_the_checkout(wheel: Path) -> None:
    assert not {"build", "dist", "inference_platform.egg-info"} & {path.name for path in ROOT.iterdir()}


def test_an_installed_command_says_its_version_and_place(environment: Path, tmp_path: Path) -> None:
    result = sitectl(environment, tmp_path, "--version")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"sitectl 0.1.0 ({environment}/lib/")


def test_an_installed_command_knows_what_is_pinned_and_what_can_be_ordered(environment: Path, tmp_path: Path) -> None:
    assert "vllm" in sitectl(environment, tmp_path, "versions").out
    listed = json.loads(sitectl(environment, tmp_path, "catalogue", "list", "--json").out)
    assert sorted(listed) == sorted(catalogue.names())
    shown = sitectl(environment, tmp_path, "catalogue", "show", "glm-5.1-fp8")
    assert (shown.status, "longest context" in shown.out) == (0, True)


def test_an_installed_command_has_its_pages_in_any_folder(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mine.md").write_text("# Of another project\n")
    listed = sitectl(environment, tmp_path, "docs")
    assert listed.status == 0, listed.err
    assert "how-to" in listed.out
    assert "mine" not in listed.out
    assert listed.out.endswith("one of them: sitectl docs NAME\n")
    assert sitectl(environment, tmp_path, "docs", "add-a-model").out.startswith("# Add a model")
    for name, value in {
        "_SITECTL_COMPLETE": "bash_complete",
        "COMP_WORDS": "sitectl docs add",
        "COMP_CWORD": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert "plain,add-a-model" in sitectl(environment, tmp_path).out.splitlines()


@pytest.mark.exhaustive
def test_an_installed_command_works_on_the_folder_of_its_user(environment: Path, project: Path) -> None:
    valid = sitectl(environment, project, "validate", "lab")
    assert valid.status == 0, valid.err + valid.out
    assert "next: sitectl proof lab" in valid.out
    proven = sitectl(environment, project, "proof", "lab")
    assert proven.status == 0, proven.err + proven.out
    assert ": holds." in proven.out
    reported = sitectl(environment, project, "explain", "--site", "lab", "gateway.port")
    assert (reported.status, "Pulumi.lab.yaml" in reported.out) == (0, True)
    below = project / "notes"
    below.mkdir()
    assert sitectl(environment, below, "validate", "lab").out == valid.out


def test_an_installed_command_renders_with_the_installed_program(environment: Path, project: Path) -> None:
    made = sitectl(environment, project, "render", "lab", "--out", "rendered")
    assert made.status == 0, made.err + made.out
    assert len([path for path in (project / "rendered" / "lab").rglob("*.yaml") if path.is_file()]) > 20
    judged = sitectl(environment, project, "rules", "lab")
    assert judged.status == 0, judged.err + judged.out


@pytest.mark.exhaustive
def test_a_new_site_of_an_installed_command_names_what_is_there(environment: Path, project: Path) -> None:
    made = sitectl(environment, project, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    assert made.status == 0, made.err + made.out
    assert "next: sitectl validate berlin" in made.out
    text = (project / "Pulumi.berlin.yaml").read_text()
    assert "docs/" not in text
    assert "sitectl docs configuration" in text
    assert sitectl(environment, project, "validate", "berlin").status == 0


@pytest.mark.exhaustive
def test_an_installed_command_outside_of_a_project_says_what_one_is(environment: Path, tmp_path: Path) -> None:
    result = sitectl(environment, tmp_path, "validate")
    assert result.status == 2
    assert "no folder above it holds Pulumi.yaml and __main__.py" in result.err
    assert "copy these two from a checkout" in result.err


@pytest.mark.exhaustive
def test_only_a_checkouts_catalogue_takes_a_model(environment: Path, project: Path) -> None:
    config = project / "config.json"
    config.write_text("{}")
    given = ["--repository", "a/b", "--licence", "MIT", "--source", "x", "--parameters", "1e9", "--published", "x"]
    result = sitectl(environment, project, "catalogue", "add", str(config), *given)
    assert result.status == 1
    assert f"{project} has no stacks/facts/catalogue, and a model is added there" in result.err
    assert not (project / "stacks").exists()


@pytest.mark.exhaustive
def test_a_checkout_with_another_program_is_noted(environment: Path, project: Path) -> None:
    """Or `validate` would judge by facts that `up` does not have."""
    facts = project / "stacks" / "facts"
    shutil.copytree(ROOT / "stacks" / "facts", facts, ignore=shutil.ignore_patterns("__pycache__"))
    assert sitectl(environment, project, "validate", "lab").err == ""
    (facts / "versions.yaml").write_text((facts / "versions.yaml").read_text() + "# another\n")
    result = sitectl(environment, project, "validate", "lab")
    assert result.status == 0
    assert result.err.startswith("note: stacks/facts/versions.yaml of this checkout is not as installed")
    assert sitectl(environment, project, "validate", "lab", "--json").err == ""


@pytest.mark.exhaustive
def test_the_doctor_of_an_installed_command_names_no_target_of_make_here(environment: Path, project: Path) -> None:
    result = sitectl(environment, project, "doctor", "--json")
    assert result.status == 0, result.out
    fixes = {check["name"]: check["fix"] for check in json.loads(result.out)}
    assert fixes["CRD bundle"] == "sitectl bundle"


@pytest.mark.exhaustive
def test_an_installed_command_is_named_as_it_was_called(environment: Path, project: Path) -> None:
    away = {name: value for name, value in os.environ.items() if name != "SITECTL_CALLED_AS"}
    (project / ".venv").symlink_to(environment)
    called = [".venv/bin/sitectl", "validate", "lab"]
    done = subprocess.run(called, cwd=project, env=away, capture_output=True, text=True, check=True)
    assert "next: .venv/bin/sitectl proof lab" in done.stdout


@pytest.mark.exhaustive
def test_fixes_of_an_installed_command_name_what_is_there(environment: Path, project: Path) -> None:
    file = project / "Pulumi.lab.yaml"
    text = file.read_text()
    file.write_text(text.replace("inference-platform:site:", "inference-platform:site:\n    zzz: 1", 1))
    wrong = sitectl(environment, project, "validate", "lab").out
    assert "fix: take it out; every key: sitectl docs configuration" in wrong
    assert sitectl(environment, project, "docs", "configuration").status == 0
    file.write_text(
        text.replace("          engine: simulator", "          engine: simulator\n          extra_args: [--zzz-zzz]", 1)
    )
    (named,) = re.findall(
        r"(\S+/stacks/facts/\S+) lists all flags", sitectl(environment, project, "validate", "lab").out
    )
    assert Path(named).is_relative_to(environment)
    assert Path(named).is_file()


def test_without_its_dependencies_it_says_so(environment: Path, tmp_path: Path) -> None:
    """-S leaves the packages out; the module is found by PYTHONPATH alone."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "sitectl").symlink_to(packages / "sitectl")
    result = subprocess.run(
        [sys.executable, "-S", "-m", "sitectl", "--version"], cwd=alone, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[0].endswith("lacks packages")
    assert "Traceback" not in result.stderr
