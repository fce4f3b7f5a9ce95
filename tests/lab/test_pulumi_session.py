"""The lab's pulumi session with the checked-in stack file: no command of a user may change that file.

Needs the built or an official `pulumi`, but no cluster.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import session
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from tests import documented


@pytest.fixture
def lab(lab_of_tools: Lab) -> Lab:
    return lab_of_tools


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The checked-in project and stack files over a program that keeps one secret."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Pulumi.yaml", "Pulumi.lab.yaml"):
        shutil.copy(CHECKOUT / name, folder)
    (folder / "__main__.py").write_text("import pulumi\npulumi.export('kept', pulumi.Output.secret('quiet-word'))\n")
    return folder


def test_a_stacks_life_leaves_the_checked_in_files_alone(lab: Lab, project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.glob("Pulumi*.yaml")}
    for command, more in (
        (documented.argv("pulumi preview"), []),
        (documented.argv("pulumi up"), ["--yes", "--skip-preview"]),
        (documented.argv("pulumi refresh"), ["--yes"]),
        (documented.argv("pulumi cancel --yes"), []),
        (documented.argv("pulumi destroy"), ["--yes", "--skip-preview"]),
    ):
        session.run_pulumi(lab, *command[1:], *more, project=project)
    assert {path.name: path.read_bytes() for path in project.glob("Pulumi*.yaml")} == before


def test_secrets_of_the_state_need_the_passphrase(lab: Lab, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session.run_pulumi(lab, "up", "--yes", "--skip-preview", project=project)
    state = "".join(path.read_text() for path in lab.pulumi.rglob("*.json"))
    assert "kept" in state
    assert "quiet-word" not in state
    shown = session.run_pulumi(lab, "stack", "output", "kept", "--show-secrets", project=project)
    assert shown.stdout.strip() == "quiet-word"
    monkeypatch.setattr(session, "PASSPHRASE", "another one")
    with pytest.raises(LabError, match="incorrect passphrase"):
        session.run_pulumi(lab, "stack", "output", "kept", "--show-secrets", project=project)


VOLUME = """
import os
import pulumi

if "GONE" not in os.environ:
    options = pulumi.ResourceOptions(protect="PROTECTED" in os.environ)
    pulumi.ComponentResource("test:index:Volume", "weights", opts=options)
"""


def test_what_is_protected_goes_only_by_permission(lab: Lab, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a name that leaves the site nor `destroy` takes a volume whose site does not let it go."""
    (project / "__main__.py").write_text(VOLUME)

    def pulumi(*arguments: str, **environment: str) -> str:
        for name in ("PROTECTED", "GONE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return session.run_pulumi(lab, *arguments, project=project).stdout

    up, destroy = ("up", "--yes", "--skip-preview"), ("destroy", "--yes", "--skip-preview")
    pulumi(*up, PROTECTED="1")
    for refused, environment in ((up, {"GONE": "1"}), (("preview",), {"GONE": "1"}), (destroy, {})):
        with pytest.raises(LabError, match="protected"):
            pulumi(*refused, **environment)
    # By the site: the permission first, the deletion next.
    pulumi(*up)
    pulumi(*up, GONE="1")
    assert "weights" not in pulumi("stack", "--show-urns")
    # By hand.
    pulumi(*up, PROTECTED="1")
    urn = next(word for word in pulumi("stack", "--show-urns").split() if word.endswith("::weights"))
    pulumi("state", "unprotect", urn, "--yes")
    pulumi(*destroy)
    assert "weights" not in pulumi("stack", "--show-urns")


SERVED = """
import pulumi

volume = pulumi.ComponentResource("test:index:Volume", "weights", opts=pulumi.ResourceOptions(protect=True))
pulumi.ComponentResource("test:index:Server", "server", opts=pulumi.ResourceOptions(depends_on=[volume]))
"""


def test_a_refused_destroy_deletes_nothing_unless_its_preview_is_skipped(lab: Lab, project: Path) -> None:
    """The engine's own way: without a preview it begins with what no protected resource needs."""
    (project / "__main__.py").write_text(SERVED)

    def held() -> set[str]:
        words = session.run_pulumi(lab, "stack", "--show-urns", project=project).stdout.split()
        return {word.rpartition("::")[2] for word in words if "test:index:" in word and "::" in word}

    session.run_pulumi(lab, "up", "--yes", "--skip-preview", project=project)
    for options, left in (((), {"weights", "server"}), (("--skip-preview",), {"weights"})):
        with pytest.raises(LabError, match="protected"):
            session.run_pulumi(lab, "destroy", "--yes", *options, project=project)
        assert held() == left


def test_pulumi_by_hand_works_in_a_shell(lab: Lab, project: Path) -> None:
    session.prepare(lab, project)
    lines = "\n".join(f"export {name}='{value}'" for name, value in session.settings(lab).items())
    script = (
        f"{lines}\npulumi up --yes --skip-preview && pulumi preview --expect-no-changes && pulumi stack --show-name"
    )
    done = subprocess.run(["sh", "-c", script], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == session.STACK
    assert sys.prefix in session.settings(lab)["PATH"]
