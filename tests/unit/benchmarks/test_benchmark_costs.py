"""What a preview costs compared with `kubectl diff`: timed commands, objects of a state, sentences of figures."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.costs import Cost, Stopwatch, middle, role
from benchmarks.site_preview import Sized, findings, objects_of, roles_row
from lab.errors import LabError
from lab.paths import Lab

SIGNATURE = "4dabf18193072939515e22adb298388d"


def cost(cpu_s: float) -> Cost:
    return Cost(wall_s=2 * cpu_s, cpu_s={"engine": 0.75 * cpu_s, "API server": 0.25 * cpu_s})


def resource(kind: str, name: str, custom: bool = True, **body: Any) -> dict[str, Any]:
    return {"type": kind, "custom": custom, "inputs": {"metadata": {"name": name}, **body}}


def test_a_command_is_timed_with_what_it_printed(tmp_path: Path) -> None:
    watch = Stopwatch(Lab.from_environment(), tmp_path)
    busy = "import time\nwhile time.process_time() < 0.4: pass\nprint('done')"
    run = watch.timed([sys.executable, "-c", busy], folder=tmp_path, environment=dict(os.environ))
    assert run.output == ("done",)
    assert run.cpu_s["engine"] > 0.05
    assert run.written >= len("done\n")


@pytest.mark.processes
def test_short_processes_are_counted_by_what_their_parent_waited_for(tmp_path: Path) -> None:
    """Twelve commands of a twentieth of a second each: a look every quarter of a second would miss most of them."""
    busy = "import time\nwhile time.process_time() < 0.05: pass"
    plugin = tmp_path / "pulumi-resource-command"
    plugin.write_text(
        f"import subprocess, sys, time\n"
        f"for _ in range(12): subprocess.run([sys.executable, '-S', '-c', {busy!r}], check=True)\n"
        # Until it was looked at once more; on a busy machine looks are late.
        "time.sleep(3)"
    )
    watch = Stopwatch(Lab.from_environment(), tmp_path)
    engine = f"import subprocess, sys\nsubprocess.run([sys.executable, {str(plugin)!r}], check=True)"
    run = watch.timed([sys.executable, "-c", engine], folder=tmp_path, environment=dict(os.environ))
    assert run.cpu_s["commands"] >= 12 * 0.05
    assert run.cpu_s["command plugin"] < 1


def test_a_status_counts_as_failure_unless_it_is_fine(tmp_path: Path) -> None:
    watch = Stopwatch(Lab.from_environment(), tmp_path)
    command = [sys.executable, "-c", "import sys; print('differs'); sys.exit(1)"]
    environment = dict(os.environ)
    with pytest.raises(LabError, match="ended with 1:\ndiffers"):
        watch.timed(command, folder=tmp_path, environment=environment)
    assert watch.timed(command, folder=tmp_path, environment=environment, fine=(0, 1)).output == ("differs",)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("/bin/pulumi preview", "engine"),
        ("/bin/pulumi-language-python --root x", "language host"),
        ("python pulumi-language-python-exec --monitor x", "program"),
        ("python -m lab.plugins.kubernetes 127.0.0.1", "Kubernetes plugin"),
        ("/bin/pulumi-resource-kubernetes 127.0.0.1", "Kubernetes plugin"),
        ("python3 /lab/stand-ins/pulumi-resource-command 127.0.0.1", "command plugin"),
        ("kubectl diff --server-side", "kubectl"),
    ],
)
def test_processes_are_distinguished(command: str, wanted: str) -> None:
    assert role(command) == wanted


def test_the_middle_run_is_the_median_of_cpu_time() -> None:
    assert middle([cost(9), cost(1), cost(4)]).cpu_total_s == 4


def test_the_objects_of_a_state_are_those_that_the_api_server_has() -> None:
    """Charts, commands, components and the provider are none; a secret is the value that was declared."""
    key = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps("sk-1")}
    state = {
        "deployment": {
            "resources": [
                resource("pulumi:pulumi:Stack", "s", custom=False),
                resource("inference-platform:access:Access", "a", custom=False),
                resource("pulumi:providers:kubernetes", "p"),
                resource("command:local:Command", "c"),
                resource("kubernetes:helm.sh/v3:Release", "h"),
                resource("kubernetes:core/v1:Secret", "keys", stringData={"k": key}),
                resource("kubernetes:apps/v1:Deployment", "d", spec={"containers": [{"args": ["a", 1]}]}),
                resource("kubernetes:x/v1:Definition", "e", schema={"x_kubernetes_map_type": "atomic", "a_b": 1}),
            ]
        }
    }
    assert objects_of(state) == [
        {"metadata": {"name": "keys"}, "stringData": {"k": "sk-1"}},
        {"metadata": {"name": "d"}, "spec": {"containers": [{"args": ["a", 1]}]}},
        {"metadata": {"name": "e"}, "schema": {"x-kubernetes-map-type": "atomic", "a_b": 1}},
    ]


def sized(objects: int, preview_s: float, diff_s: float, differing: int = 0) -> Sized:
    return Sized(
        objects=objects, resources=9, differing=differing, previews=[cost(preview_s)] * 3, diffs=[cost(diff_s)] * 3
    )


def test_every_process_of_a_preview_has_a_column() -> None:
    spent = Cost(wall_s=1, cpu_s={"engine": 3.004, "commands": 2.0, "API server": 1.0})
    assert roles_row(300, spent) == {"objects": 300, "engine": 3.0, "commands": 2.0, "API server": 1.0}


def test_findings_compare_and_say_how_both_grow() -> None:
    text = " ".join(findings([sized(100, 2, 1), sized(1000, 20, 10)]))
    assert "1000 objects: a no-op preview takes 20.0 s of CPU, `kubectl diff --server-side` 10.0 s" in text
    assert "a ratio of 2.0; 20.0 and 10.0 ms an object" in text
    assert "the preview grows with objects^1.00, the diff with objects^1.00" in text
    assert "differ" not in text.replace("kubectl diff", "")
    assert "4 of them differ" in " ".join(findings([sized(100, 2, 1, differing=4)]))
