"""What `pulumi` needs to run against the lab: engine and plugins, the environment, the stack's state."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import click
import psutil
import yaml

from lab.errors import LabError
from lab.install.choices import PluginChoice, plugin_choice, pulumi_choice
from lab.paths import CHECKOUT, SITE_FILE, Lab, NetworkPlan

STACK = "lab"
# Published on purpose: docs/adr/0003-lab-secrets.md has the reason, and what it does not protect.
PASSPHRASE = "inference-platform-lab"  # noqa: S105
PLUGINS = ("kubernetes", "command")
# pulumi takes each of its options from a variable too; an option that is given goes first.
_STACK_FILE_OPTION = "PULUMI_OPTION_CONFIG_FILE"
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_LINES_SHOWN = 25


def settings(lab: Lab, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a lab session sets, and nothing else; applying them twice is applying them once."""
    engine = pulumi_choice(lab, environment)
    folders = [_python_folder(), lab.bin, *([engine.program.parent] if engine.official else []), _links(lab)]
    chosen = {
        "KUBECONFIG": str(lab.kubeconfig),
        # A state in files is replaced atomically, but the file of attributes next to it is not: an engine that is
        # killed over it leaves it empty, and then no engine can load the state.
        "PULUMI_BACKEND_URL": f"file://{lab.pulumi}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_STACK": STACK,
        # Pods of the lab start within a second, and every Service of every `up` would wait ten for stragglers.
        "LAB_ENDPOINTS_SETTLE_S": environment.get("LAB_ENDPOINTS_SETTLE_S") or "1",
        # The v3.76 language host takes the first python on PATH, whatever Pulumi.yaml sets as virtual environment.
        "PATH": _path(folders, environment),
    }
    if all(choice.kind == "stand-in" for choice in plugins(lab, environment)):
        # The user's own folder holds logins and selected stacks, which are none of the lab's business.
        chosen["PULUMI_HOME"] = str(_own_home(lab))
    else:
        chosen["PULUMI_HOME"] = str(_users_home(lab, environment))
    if stack_file(lab) != SITE_FILE:
        chosen[_STACK_FILE_OPTION] = str(stack_file(lab))
    return chosen


def stack_file(lab: Lab) -> Path:
    """The stack file of this lab: the checked-in one, or a copy of the lab's own, with the addresses of this index."""
    return SITE_FILE if lab.index == 0 and lab.site_file == SITE_FILE else lab.home / SITE_FILE.name


def moved(text: str, plan: NetworkPlan) -> str:
    """The text with the addresses of lab 0 replaced by those of another lab's plan."""
    first = NetworkPlan(index=0)

    def move(match: re.Match[str]) -> str:
        try:
            address = IPv4Address(match.group())
        except AddressValueError:
            return match.group()
        return str(plan.base + (int(address) - int(first.base))) if address in first.whole else match.group()

    return _ADDRESS.sub(move, text)


def plugins(lab: Lab, environment: Mapping[str, str] = os.environ) -> tuple[PluginChoice, ...]:
    """Who serves each provider that the program uses, also when asked from inside a session."""
    outside = {**environment, "PULUMI_HOME": str(_users_home(lab, environment))}
    return tuple(plugin_choice(name, outside) for name in PLUGINS)


def environment(lab: Lab, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A whole process environment for `pulumi` and for programs that talk to the lab."""
    # What an outer session sets for its stack file is not for this one.
    rest = {name: value for name, value in base.items() if name != _STACK_FILE_OPTION}
    return {**rest, **settings(lab, base)}


def prepare(lab: Lab, project: Path = CHECKOUT) -> None:
    """Make the state folder, the stack file and the stack exist, and the links to the stand-ins; drop dead locks."""
    lab.make_folders()
    _links(lab).mkdir(exist_ok=True)
    if stack_file(lab) != SITE_FILE:
        _write_stack_file(lab)
    _link_stand_ins(lab)
    if not pulumi_choice(lab).program.exists():
        raise LabError("no pulumi: neither built for this lab nor an official one on PATH", fix="make tools")
    drop_dead_locks(lab)
    if not _stack_exists(lab, project):
        _captured(lab, ("stack", "init", STACK, "--no-select"), project, check=True)


def run_pulumi(
    lab: Lab, *arguments: str, project: Path = CHECKOUT, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `pulumi ARGUMENTS` in the session's environment, output captured. `check` raises LabError when it fails."""
    prepare(lab, project)
    return _captured(lab, arguments, project, check=check)


def stream_pulumi(lab: Lab, *arguments: str, project: Path = CHECKOUT) -> int:
    """Run `pulumi ARGUMENTS` with its output going straight to the terminal; its exit status."""
    prepare(lab, project)
    return subprocess.run(
        ["pulumi", *arguments],
        cwd=project,
        env=_project_environment(lab, project),
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode


def drop_dead_locks(lab: Lab) -> list[Path]:
    """Remove locks that engines of this machine left when they were killed; the removed files.

    The file backend never does this itself: it cannot know whether the machine that holds a lock is another one.
    """
    dropped = []
    for lock in sorted((lab.pulumi / ".pulumi" / "locks").rglob("*.json")):
        try:
            holder = json.loads(lock.read_text())
        except (OSError, ValueError):
            continue
        if holder.get("hostname") == socket.gethostname() and not _is_pulumi(int(holder.get("pid", 0))):
            lock.unlink(missing_ok=True)
            dropped.append(lock)
    return dropped


@click.command(epilog="With it, pulumi, kubectl and helm work on the lab as on any cluster; git status stays clean.")
@click.pass_obj
def command(lab: Lab) -> int:
    """Print the environment to run pulumi yourself, as `export` lines.

    \b
      eval "$(python -m lab env)"
    \f
    What they promise (state folder, stack, links) exists afterwards.
    """
    prepare(lab)
    for name, value in sorted(settings(lab).items()):
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    return 0


def _captured(lab: Lab, arguments: tuple[str, ...], project: Path, *, check: bool) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["pulumi", *arguments],
        cwd=project,
        env=_project_environment(lab, project),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        # With --json the diagnostics go to stdout, and stderr has warnings alone.
        last_lines = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip()))).splitlines()[-_LINES_SHOWN:]
        raise LabError(
            f"`pulumi {shlex.join(arguments)}` ended with {done.returncode}:\n" + "\n".join(last_lines),
            fix='read its last lines above; to run it yourself: eval "$(python -m lab env)" and run it again',
        )
    return done


def _write_stack_file(lab: Lab) -> None:
    wanted = moved(lab.site_file.read_text(), lab.network)
    if not stack_file(lab).exists() or stack_file(lab).read_text() != wanted:
        draft = stack_file(lab).with_suffix(".draft")
        draft.write_text(wanted)
        draft.replace(stack_file(lab))


def _project_environment(lab: Lab, project: Path) -> dict[str, str]:
    """The session's, without the platform's stack file for a project that is another one."""
    chosen = environment(lab)
    if project != CHECKOUT:
        chosen.pop(_STACK_FILE_OPTION, None)
    return chosen


def _link_stand_ins(lab: Lab) -> None:
    # The engine takes what is on PATH before what is installed, so only the stand-ins that are used may be there.
    wanted = {f"pulumi-resource-{plugin.name}": plugin.path for plugin in plugins(lab) if plugin.kind == "stand-in"}
    folder = _links(lab)
    for link in folder.iterdir():
        if link.name not in wanted:
            link.unlink()
    for name, target in wanted.items():
        link = folder / name
        if not (link.is_symlink() and link.readlink() == target):
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def _stack_exists(lab: Lab, project: Path) -> bool:
    name = yaml.safe_load((project / "Pulumi.yaml").read_text())["name"]
    folder = lab.pulumi / ".pulumi" / "stacks" / name
    return any((folder / f"{STACK}.json{end}").exists() for end in ("", ".gz"))


def _links(lab: Lab) -> Path:
    return lab.home / "stand-ins"


def _own_home(lab: Lab) -> Path:
    return lab.home / "pulumi-home"


def _users_home(lab: Lab, environment: Mapping[str, str]) -> Path:
    given = environment.get("PULUMI_HOME", "")
    return Path(given) if given and given != str(_own_home(lab)) else Path.home() / ".pulumi"


def _python_folder() -> Path:
    venv = CHECKOUT / ".venv"
    # A caller with its own environment (CI, another checkout's) means that one.
    return Path(sys.prefix) / "bin" if sys.prefix != sys.base_prefix or not venv.exists() else venv / "bin"


def _path(first: list[Path], environment: Mapping[str, str]) -> str:
    wanted = [str(folder) for folder in first]
    rest = [folder for folder in environment.get("PATH", os.defpath).split(os.pathsep) if folder not in wanted]
    return os.pathsep.join([*wanted, *rest])


def _is_pulumi(pid: int) -> bool:
    try:
        return psutil.Process(pid).name() == "pulumi"
    except psutil.Error:
        return False
