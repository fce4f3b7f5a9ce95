"""The command plugin under the real engine: a resource's life, what previews say, and where secrets may not appear.

Needs the built or an official `pulumi`, but no cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import session
from lab.errors import LabError
from lab.paths import Lab

CANARY = "canary-4f1c9d"
PROJECT = "name: plugin-command\nruntime: {name: python, options: {virtualenv: .venv}}\n"


@dataclass(frozen=True)
class Site:
    """A project of its own with one Command `job`, whose scripts append to `log`."""

    lab: Lab
    folder: Path

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def declare(self, arguments: str, before: str = "", exports: str = "") -> None:
        lines = (
            "import pulumi",
            "from pulumi_command import local",
            before,
            f"job = local.Command('job', {arguments})",
        )
        (self.folder / "__main__.py").write_text("\n".join([*lines, exports, ""]))

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return session.run_pulumi(self.lab, *arguments, project=self.folder, check=check)

    def up(self, *arguments: str) -> dict[str, Any]:
        """Update without preview; the state of `job`."""
        self.pulumi("up", "--yes", "--skip-preview", *arguments)
        return self.state()

    def state(self) -> dict[str, Any]:
        resources = json.loads(self.pulumi("stack", "export").stdout)["deployment"].get("resources", [])
        return next((resource for resource in resources if resource["type"] == "command:local:Command"), {})

    def preview(self) -> dict[str, Any]:
        """The preview's step for `job`: `op`, `detailedDiff`, `newState`."""
        steps = json.loads(self.pulumi("preview", "--json").stdout)["steps"]
        found: dict[str, Any] = next(step for step in steps if step["urn"].endswith("::job"))
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    tools = Lab.from_environment()
    lab = Lab(home=tmp_path / "lab", cache=tools.cache)
    lab.home.mkdir()
    lab.bin.symlink_to(tools.bin)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(PROJECT)
    return Site(lab, folder)


def test_a_commands_life(site: Site) -> None:
    site.declare("create='echo made >> log; echo one', update='echo changed >> log', delete='echo gone >> log'")
    assert site.preview()["op"] == "create"
    assert site.log == [], "a preview runs nothing"
    made = site.up()
    assert made["outputs"]["stdout"] == "one"
    assert made["id"].startswith("job")

    site.pulumi("preview", "--expect-no-changes")
    site.pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
    site.pulumi("refresh", "--yes", "--expect-no-changes")
    assert site.log == ["made"]

    site.declare(
        "create='echo made >> log; echo one', update='echo changed $X >> log', delete='echo gone $PULUMI_COMMAND_STDOUT"
        " >> log', environment={'X': 'why'}"
    )
    step = site.preview()
    assert step["op"] == "update"
    assert sorted(step["detailedDiff"]) == ["delete", "environment", "update"]
    changed = site.up()
    assert site.log == ["made", "changed why"]
    assert changed["id"] == made["id"]
    assert changed["outputs"]["stdout"] == ""

    site.pulumi("destroy", "--yes", "--skip-preview")
    assert site.log == ["made", "changed why", "gone"]
    assert site.state() == {}


def test_a_changed_trigger_replaces(site: Site) -> None:
    site.declare("create='echo made >> log', update='echo changed >> log', delete='echo gone >> log', triggers=['a']")
    first = site.up()
    site.declare("create='echo made >> log', update='echo changed >> log', delete='echo gone >> log', triggers=['b']")
    assert site.preview()["op"] in {"replace", "create-replacement"}
    second = site.up()
    assert second["id"] != first["id"]
    assert site.log == ["made", "made", "gone"], "the new one is made before the old one is deleted"


def test_a_preview_shows_what_an_update_does_to_those_who_use_its_output(site: Site) -> None:
    after = "local.Command('after', create=job.stdout.apply(lambda text: f'echo after {text}'))"
    site.declare("create='echo one'", exports=after)
    site.up()
    site.declare("create='echo two'", exports=after)
    steps = json.loads(site.pulumi("preview", "--json").stdout)["steps"]
    operations = {step["urn"].rsplit("::", 1)[-1]: step["op"] for step in steps}
    assert (operations["job"], operations["after"]) == ("update", "update")
    site.up()
    site.pulumi("preview", "--expect-no-changes")


def test_a_failing_command_says_why_and_leaves_no_resource(site: Site) -> None:
    site.declare(
        "create='echo token $TOKEN >&2; echo the disk is full >&2; exit 3', environment={'TOKEN': secret}",
        before=f"secret = pulumi.Output.secret('{CANARY}')",
    )
    with pytest.raises(LabError):
        site.pulumi("up", "--yes", "--skip-preview")
    failed = site.pulumi("up", "--yes", "--skip-preview", check=False)
    said = failed.stdout + failed.stderr
    assert "exit status 3" in said
    assert "the disk is full" in said
    assert CANARY not in said
    assert site.state() == {}


def test_a_secret_appears_nowhere_in_plain_text(site: Site) -> None:
    site.declare(
        "create='cat > given; echo $TOKEN >> given; echo using $TOKEN', stdin=secret, environment={'TOKEN': secret}, "
        "triggers=[secret], opts=pulumi.ResourceOptions(additional_secret_outputs=['stdout'])",
        before=f"secret = pulumi.Output.secret('{CANARY}')",
        exports="pulumi.export('used', job.stdout)",
    )
    shown = [site.pulumi("preview", "--diff"), site.pulumi("up", "--yes", "--skip-preview", "--diff")]
    site.declare(
        "create='cat > given; echo $TOKEN >> given; echo again $TOKEN', stdin=secret, environment={'TOKEN': secret}, "
        "triggers=[secret], opts=pulumi.ResourceOptions(additional_secret_outputs=['stdout'])",
        before=f"secret = pulumi.Output.secret('{CANARY}')",
        exports="pulumi.export('used', job.stdout)",
    )
    shown += [site.pulumi("preview", "--json"), site.pulumi("up", "--yes", "--skip-preview", "-v=9", "--logtostderr")]
    assert (site.folder / "given").read_text() == f"{CANARY}{CANARY}\n"
    # The engine's own debug log is not the plugin's; what the plugin says on stderr ends up in it.
    plugin_lines = "\n".join(line for line in shown[-1].stderr.splitlines() if "pulumi-resource-command" in line)
    assert CANARY not in plugin_lines
    assert all(CANARY not in run.stdout for run in shown)
    for path in (site.lab.pulumi / ".pulumi").rglob("*"):
        assert path.is_dir() or CANARY not in path.read_text(errors="replace"), path
    assert site.pulumi("stack", "output", "used", "--show-secrets").stdout.strip() == f"again {CANARY}"


def test_files_come_back_as_assets(site: Site) -> None:
    site.declare(
        "create='mkdir -p out/sub; echo a > out/a.txt; echo b > out/sub/b.txt; echo c > out/secret.txt', dir='.', "
        "asset_paths=['out/*', '!**secret*'], archive_paths=['out/**']",
        exports="pulumi.export('names', job.assets.apply(lambda found: sorted(found)))",
    )
    site.pulumi("preview")
    outputs = site.up()["outputs"]
    assert sorted(outputs["assets"]) == ["out/a.txt"]
    assert sorted(outputs["archive"]["assets"]) == ["out/a.txt", "out/secret.txt", "out/sub/b.txt"]
    site.pulumi("preview", "--expect-no-changes")


def test_a_function_runs_on_every_preview(site: Site) -> None:
    site.declare(
        "create='true'", exports="pulumi.export('now', local.run_output(command='echo ran; echo x >> log').stdout)"
    )
    assert "ran" in site.pulumi("preview").stdout
    assert site.log == ["x"]


def test_wrong_inputs_and_remote_commands_are_refused(site: Site) -> None:
    site.declare("create='true', logging='loud'")
    failed = site.pulumi("preview", check=False)
    assert failed.returncode != 0
    assert "stdoutAndStderr" in failed.stdout + failed.stderr

    site.declare(
        "create='true'",
        before="from pulumi_command import remote\n"
        "remote.Command('far', create='true', connection=remote.ConnectionArgs(host='127.0.0.1'))",
    )
    failed = site.pulumi("preview", check=False)
    assert failed.returncode != 0
    assert "command:remote:Command" in failed.stdout + failed.stderr


def test_a_killed_engine_takes_its_commands_along_and_the_next_up_completes(site: Site) -> None:
    site.declare("create='echo $$ > pid; test -e again || exec sleep 300; echo done'")
    session.prepare(site.lab, site.folder)
    with subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview"],
        cwd=site.folder,
        env=session.environment(site.lab),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as engine:
        pid = _appears(site.folder / "pid")
        engine.kill()
    _ends(pid)
    (site.folder / "again").touch()
    assert site.up()["outputs"]["stdout"] == "done"


def _every_tenth(seconds: float) -> Iterator[None]:
    for _ in range(int(seconds * 10)):
        yield
        time.sleep(0.1)


def _appears(path: Path) -> int:
    for _ in _every_tenth(60):
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
    raise AssertionError(f"no {path}")


def _ends(pid: int) -> None:
    for _ in _every_tenth(20):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
    raise AssertionError(f"{pid} still runs")
