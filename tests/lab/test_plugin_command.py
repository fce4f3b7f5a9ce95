"""The command plugin: a resource's life by the engine's protocol, and under the real engine what is the engine's part.

Needs the built or an official `pulumi`, but no cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import session
from lab.paths import Lab
from lab.plugins import values
from lab.plugins.command.process import JobRunner
from lab.plugins.command.provider import CommandProvider
from tests.lab.engine_state import differences, resources
from tests.lab.provider_driver import Declared, Driver, FailedError, Ref
from tests.lab.waiting import eventually

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
        job: dict[str, Any] = next(step for step in steps if step["urn"].endswith("::job"))
        return job


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


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The plugin in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Driver("command", lambda log: CommandProvider(log, JobRunner()))


def job(**inputs: Any) -> Declared:
    return Declared(type="command:local:Command", name="job", inputs=inputs)


def lines(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_commands_life(driver: Driver, tmp_path: Path) -> None:
    program = job(create="echo made >> log; echo one", update="echo changed >> log", delete="echo gone >> log")
    assert driver.preview(program)["job"].op == "create"
    assert lines(tmp_path) == [], "a preview runs nothing"
    driver.up(program)
    made = driver.state["job"]
    assert made.outputs["stdout"] == "one"
    assert made.id.startswith("job")

    driver.unchanged(program)
    assert driver.up(program)["job"].op == "same"
    driver.refresh()
    assert driver.state["job"] == made
    assert lines(tmp_path) == ["made"]

    program = job(
        create="echo made >> log; echo one",
        update="echo changed $X >> log",
        delete="echo gone $PULUMI_COMMAND_STDOUT >> log",
        environment={"X": "why"},
    )
    step = driver.preview(program)["job"]
    assert step.op == "update"
    assert sorted(step.detailed_diff) == ["delete", "environment", "update"]
    driver.up(program)
    assert lines(tmp_path) == ["made", "changed why"]
    assert driver.state["job"].id == made.id
    assert driver.state["job"].outputs["stdout"] == ""

    driver.destroy()
    assert lines(tmp_path) == ["made", "changed why", "gone"]
    assert driver.state == {}


def test_a_changed_trigger_replaces(driver: Driver, tmp_path: Path) -> None:
    life = {"create": "echo made >> log", "update": "echo changed >> log", "delete": "echo gone >> log"}
    driver.up(job(**life, triggers=["a"]))
    first = driver.state["job"].id
    step = driver.preview(job(**life, triggers=["b"]))["job"]
    assert (step.op, step.deletes_first) == ("replace", False)
    driver.up(job(**life, triggers=["b"]))
    assert driver.state["job"].id != first
    assert lines(tmp_path) == ["made", "made", "gone"], "the new one is made before the old one is deleted"


def test_a_preview_shows_what_an_update_does_to_those_who_use_its_output(driver: Driver) -> None:
    echo = Ref("job", "stdout", lambda text: f"echo after {text}")
    after = Declared(type="command:local:Command", name="after", inputs={"create": echo})
    driver.up(job(create="echo one"), after)
    steps = driver.preview(job(create="echo two"), after)
    assert (steps["job"].op, steps["after"].op) == ("update", "update")
    driver.up(job(create="echo two"), after)
    assert driver.state["after"].outputs["stdout"] == "after two"
    driver.unchanged(job(create="echo two"), after)


def test_a_failing_command_says_why_and_leaves_no_resource(driver: Driver) -> None:
    script = "echo token $TOKEN >&2; echo the disk is full >&2; exit 3"
    with pytest.raises(FailedError, match="exit status 3") as failed:
        driver.up(job(create=script, environment={"TOKEN": values.secret(CANARY)}))
    output = f"{failed.value}\n{driver.log.text}"
    assert "the disk is full" in output
    assert CANARY not in output
    assert driver.state == {}


def test_wrong_inputs_and_remote_commands_are_refused(driver: Driver) -> None:
    with pytest.raises(FailedError, match=r"logging: got .*stdoutAndStderr"):
        driver.preview(job(create="true", logging="loud"))
    far = {"create": "true", "connection": {"host": "127.0.0.1"}}
    with pytest.raises(FailedError, match="command:remote:Command"):
        driver.preview(Declared(type="command:remote:Command", name="far", inputs=far))


@pytest.mark.exhaustive
def test_the_engine_and_the_driver_leave_the_same_state(site: Site, driver: Driver) -> None:
    """The same program through both: states after each update, and what the previews between them say."""
    texts = "create='echo $TOKEN; echo bad >&2', update='echo $TOKEN two', environment={{'TOKEN': secret}}, triggers={}"
    inputs = {
        "create": "echo $TOKEN; echo bad >&2",
        "update": "echo $TOKEN two",
        "environment": {"TOKEN": values.secret(CANARY)},
    }
    for triggers, stdin in ((["a"], None), (["a"], "text"), (["b"], "text")):
        given = f", stdin='{stdin}'" if stdin else ""
        site.declare(texts.format(triggers) + given, before=f"secret = pulumi.Output.secret('{CANARY}')")
        program = job(**inputs, triggers=triggers, **({"stdin": stdin} if stdin else {}))
        shown = differences(site.pulumi("preview", "--json").stdout)
        steps = driver.preview(program)
        assert {name: dict(step.detailed_diff) for name, step in steps.items() if step.detailed_diff} == shown
        site.pulumi("up", "--yes", "--skip-preview")
        driver.up(program)
        kept = resources(site.pulumi("stack", "export", "--show-secrets").stdout)["job"]
        assert (kept["inputs"], kept["outputs"]) == (driver.state["job"].inputs, driver.state["job"].outputs)


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
        pid = _pid_in(site.folder / "pid")
        engine.kill()
    eventually(lambda: _is_gone(pid))
    (site.folder / "again").touch()
    assert site.up()["outputs"]["stdout"] == "done"


def _pid_in(path: Path) -> int:
    eventually(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
