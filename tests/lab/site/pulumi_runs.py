"""`pulumi` as an engineer runs it on the lab's stack: with the lab's stack file or an edited copy."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lab import session
from lab.paths import Lab

Document = dict[str, Any]
SITE = "inference-platform:site"
_COMMAND = "command:local:Command"
_SECRET = "4dabf18193072939515e22adb298388d"
# Where in which checkout the program declared it: a run from another folder notes other paths, also one that fails.
_PLACES = ("sourcePosition", "stackTrace")


class Pulumi:
    """Runs pulumi on the lab's stack; `folder` takes the edited copies of the stack file."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return session.run_pulumi(self.lab, *arguments, "--stack", session.STACK, check=check)

    def edited(self, edit: Callable[[Document], None]) -> tuple[str, str]:
        """Options that make pulumi take a copy of the stack file, its site changed by `edit`."""
        document = copy.deepcopy(yaml.safe_load(session.stack_file(self.lab).read_text()))
        edit(document["config"][SITE])
        file = self._folder / "Pulumi.edited.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return "--config-file", str(file)

    def changes(self, *options: str) -> dict[str, tuple[str, tuple[str, ...]]]:
        """What a preview would change: resource name -> operation and the paths of the properties."""
        steps = json.loads(self("preview", "--json", *options).stdout)["steps"]
        return {
            step["urn"].rpartition("::")[2]: (step["op"], tuple(sorted(step["detailedDiff"] or {})))
            for step in steps
            if step["op"] != "same"
        }

    def state(self) -> Document:
        """The stack's deployment as the engine keeps it, secrets encrypted."""
        deployment: Document = json.loads(self("stack", "export").stdout)["deployment"]
        return deployment

    def resources(self) -> dict[str, Document]:
        """URN -> what the state holds of every resource; secrets as a fixed text: each run encrypts them again."""
        held = self.state().get("resources", [])
        return {
            item["urn"]: _without_secrets({name: part for name, part in item.items() if name not in _PLACES})
            for item in held
        }

    def inputs(self) -> dict[str, Any]:
        """URN -> every resource's inputs, secrets as text, and a command's id as its URN: each run draws another."""
        resources = self.resources()
        drawn = {item["id"]: urn for urn, item in resources.items() if item["type"] == _COMMAND}
        return {urn: _named(item.get("inputs"), drawn) for urn, item in resources.items()}


def _named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _named(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_named(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        if _SECRET in value:
            return "[secret]"
        return {name: _without_secrets(part) for name, part in value.items()}
    return [_without_secrets(part) for part in value] if isinstance(value, list) else value
