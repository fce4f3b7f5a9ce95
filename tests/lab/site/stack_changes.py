"""What an engineer does to a site: edit its stack file and run `pulumi up`."""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lab import session
from lab.deploy import StackOutputs, front
from lab.paths import CHECKOUT, Lab

Document = dict[str, Any]
KEY = "inference-platform:site"
# The rack's machine that the checked-in site does not name.
_SPARE = 5


class EditedStack:
    """The lab's stack file with edits, in a file of its own."""

    def __init__(self, lab: Lab, file: Path) -> None:
        self._lab = lab
        self._file = file

    def up(self, edit: Callable[[Document], None]) -> StackOutputs:
        """`pulumi up` with the site as `edit` changes it; the stack's outputs afterwards."""
        session.run_pulumi(self._lab, *self._up(edit))
        return front(self._lab)

    def killed(self, edit: Callable[[Document], None], done: str) -> None:
        """The same, whose engine is killed once it reports this of a resource, as a pattern: `NAME updated`."""
        engine = subprocess.Popen(
            ["pulumi", *self._up(edit)],
            cwd=CHECKOUT,
            env=session.environment(self._lab),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert engine.stdout is not None
        assert any(re.search(done, line) for line in engine.stdout), "up ended before it"
        engine.kill()
        engine.communicate()

    def _up(self, edit: Callable[[Document], None]) -> tuple[str, ...]:
        document = copy.deepcopy(yaml.safe_load(session.stack_file(self._lab).read_text()))
        edit(document["config"][KEY])
        self._file.write_text(yaml.safe_dump(document, sort_keys=False))
        return ("up", "--yes", "--skip-preview", "--stack", session.STACK, "--config-file", str(self._file))

    def restore(self) -> None:
        """`pulumi up` with the file as it is checked in."""
        session.run_pulumi(self._lab, "up", "--yes", "--skip-preview", "--stack", session.STACK)


@contextmanager
def edited_stack(lab: Lab, folder: Path) -> Iterator[EditedStack]:
    """Afterwards the site is again what its checked-in file says."""
    stack = EditedStack(lab, folder / "Pulumi.edited.yaml")
    try:
        yield stack
    finally:
        stack.restore()


def make_room(lab: Lab, site: Document, model: str) -> None:
    """A node without GPUs more, two Envoys that any node's address leads to, one model whose streams are short."""
    address = str(lab.network.node_address(_SPARE))
    site["cluster"]["machines"]["nodes"]["infra-1"] = {"role": "worker", "address": address}
    site["gateway"] |= {"replicas": 2, "external_traffic_policy": "Cluster"}
    site["models"] = {model: site["models"][model]}
    site["models"][model]["server"]["longest_stream_s"] = 30
    for tenant in site["tenants"].values():
        tenant["models"] = [model]
