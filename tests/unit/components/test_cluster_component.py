"""The cluster's resources under the SDK's mocks: who waits for whom, and that no secret is where it could be read.

The canary is in the place of every secret of the cluster and the site.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime.stack import wait_for_rpcs

from components.machines import cluster_preview, machine_commands
from components.machines.cluster import Cluster, ClusterArgs
from components.machines.cluster_nodes import Rollout
from components.machines.cluster_preview import LeakError, require_no_secret
from components.machines.machine_commands import LIMITS, Limits, Machine
from talos.secrets import bundle as secrets
from tests.unit.pulumi_runtime import in_own_runtime
from tests.unit.talos import talos_examples as examples

pytestmark = pytest.mark.row("C.01")

ROOT = Path(__file__).parents[3]
CANARY = "canary-9b1f"
# The SDK's mark of a secret in a serialized input.
SIGNATURE = "4dabf18193072939515e22adb298388d"
BUNDLE = examples.bundle().export()


class Recorder(pulumi.runtime.Mocks):
    """Answers as the command plugin would, and remembers what was declared and asked."""

    def __init__(self, *, change: str = "none") -> None:
        self.resources: dict[str, pulumi.runtime.MockResourceArgs] = {}
        self.calls: list[pulumi.runtime.MockCallArgs] = []
        self.change = change

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.resources[args.name] = args
        stdout = BUNDLE if "talos secrets" in args.inputs.get("create", "") else f"{CANARY}-{args.name}"
        return args.name, {**args.inputs, "stdout": stdout}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        self.calls.append(args)
        if " plan-all " in args.args["command"]:
            reported = {"change": self.change, "says": f"it is {self.change}"}
            return {"stdout": json.dumps([reported for _ in json.loads(args.args["stdin"])])}, []
        return {"stdout": "{}"}, []


def machine(name: str, **more: Any) -> Machine:
    plane = name.startswith("cp")
    chosen = {
        "name": name,
        "address": f"10.5.0.{len(name)}{name[-1]}",
        "is_control_plane": plane,
        "image": f"factory/{name}:v1.13.9",
        "schematic_id": "a" * 64 if plane else "b" * 64,
        "schematic": "customization: {}\n" if plane else "customization: {x: y}\n",
        "nvswitch": not plane,
    }
    return Machine(**{**chosen, **more})


def rollout(limits: Limits = LIMITS, image_factory: str | None = "https://factory.site.example") -> Rollout:
    return Rollout(
        image_factory=image_factory,
        credentials_rotation=1,
        at_once=2,
        drain_timeout_s=60,
        limits=limits,
    )


def args(*machines: Machine, **more: Any) -> ClusterArgs:
    def configs(bundle: secrets.SecretsBundle, texts: Any, cilium: str | None) -> dict[str, str]:
        assert texts == {"password": CANARY}
        return {machine.name: f"{CANARY} {bundle.trustd_token} {cilium} {machine.name}" for machine in machines}

    chosen: dict[str, Any] = {
        "cluster": "site",
        "machines": machines,
        "configs": configs,
        "secret_texts": {"password": pulumi.Output.secret(CANARY)},
        "rollout": rollout(),
        "talos_version": "v1.13.9",
        "keeping": "protected",
        "imported": None,
        "cilium": "objects",
    }
    return ClusterArgs(**{**chosen, **more})


def declare(*machines: Machine, preview: bool = False, change: str = "none", **more: Any) -> Recorder:
    recorder = Recorder(change=change)

    async def run() -> None:
        made = Cluster("machines", args(*machines, **more))
        await made.preview.future()
        secret = (made.handle.kubeconfig, made.handle.talosconfig)
        assert [await output.is_secret() for output in secret] == [True, True]
        await asyncio.gather(*(resource.urn.future() for resource in made.handle.ready))
        await wait_for_rpcs()

    in_own_runtime(recorder, run, preview=preview)
    return recorder


def commands(recorder: Recorder) -> dict[str, Any]:
    return {
        name: registered.inputs
        for name, registered in recorder.resources.items()
        if registered.typ == "command:local:Command"
    }


SIX = tuple(map(machine, ("cp-1", "cp-2", "cp-3", "hgx-1", "hgx-2", "hgx-3")))


def test_every_part_is_declared_once() -> None:
    nodes = [machine.name for machine in SIX]
    assert sorted(commands(declare(*SIX))) == sorted(
        [
            "machines-identity-secrets",
            "machines-identity-talosconfig",
            *(f"machines-nodes-schematic-{letter * 12}" for letter in "ab"),
            "machines-nodes-bootstrap",
            "machines-nodes-kubeconfig",
            *(f"machines-nodes-{name}" for name in nodes),
            *(f"machines-nodes-{name}-install" for name in nodes),
        ]
    )


def options_of(monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, Any]:
    """Of a cluster of six: resource -> what the engine gets for it in addition to its inputs."""
    options: dict[str, Any] = {}
    from_init = pulumi.CustomResource.__init__

    def spy(self: Any, kind: str, name: str, props: Any = None, opts: Any = None, *rest: Any, **named: Any) -> None:
        options[name] = opts or pulumi.ResourceOptions()
        from_init(self, kind, name, props, opts, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(pulumi.CustomResource, "__init__", spy)
        declare(*SIX, **more)
    return options


def test_each_waits_for_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control planes, bootstrap, workers (at most two side by side), then a chain over all nodes."""
    start = "machines-nodes-"
    needs = {
        name.removeprefix(start): {resource._name.removeprefix(start) for resource in opts.depends_on or []}
        for name, opts in options_of(monkeypatch).items()
    }
    schematics = {"schematic-aaaaaaaaaaaa", "schematic-bbbbbbbbbbbb"}
    assert needs["cp-1-install"] == needs["cp-2-install"] == schematics
    assert needs["cp-3-install"] == schematics | {"cp-1-install"}
    assert needs["bootstrap"] == {"cp-1-install", "cp-2-install", "cp-3-install"}
    assert needs["hgx-1-install"] == schematics | {"bootstrap"}
    assert needs["hgx-3-install"] == schematics | {"bootstrap", "hgx-1-install"}
    assert needs["kubeconfig"] == {"bootstrap"}
    assert needs["cp-1"] == {f"{machine.name}-install" for machine in SIX}
    for before, after in itertools.pairwise(SIX):
        assert needs[after.name] == {before.name, f"{before.name}-install"}


def plain(value: Any) -> str:
    """Everything in an input that is not marked as secret."""
    if isinstance(value, dict):
        return "" if SIGNATURE in value else " ".join(map(plain, value.values()))
    return " ".join(map(plain, value)) if isinstance(value, list) else str(value)


def test_no_secret_is_in_a_plain_input() -> None:
    recorder = declare(*SIX)
    hidden = [CANARY, examples.bundle().trustd_token, examples.bundle().cluster_secret]
    for name, declared in recorder.resources.items():
        assert [secret for secret in hidden if secret in plain(declared.inputs)] == [], name
    for machine in SIX:
        inputs = commands(recorder)[f"machines-nodes-{machine.name}"]
        assert CANARY in str(inputs["stdin"])
        assert set(inputs["environment"]["value"]) == {"TALOS_SECRETS_TEXT", "KUBECONFIG_TEXT"}


def test_a_replaced_node_leaves_before_its_machine_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the engine would install the new machine first, and then erase it."""
    first = {name for name, opts in options_of(monkeypatch).items() if opts.delete_before_replace}
    assert first == {f"machines-nodes-{machine.name}{step}" for machine in SIX for step in ("", "-install")}


def test_what_cannot_be_made_again_is_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    for keeping, protected in (("protected", True), ("disposable", False)):
        secret = options_of(monkeypatch, keeping=keeping)["machines-identity-secrets"]
        assert (secret.protect, secret.retain_on_delete) == (protected, protected)
        assert secret.additional_secret_outputs == ["stdout"]


def test_outputs_that_are_secrets_are_not_logged() -> None:
    made = commands(declare(*SIX))
    assert made["machines-identity-secrets"]["logging"] == "none"
    assert {made[f"machines-nodes-{name}"]["logging"] for name in ("kubeconfig", "hgx-1", "hgx-1-install")} == {
        "stderr"
    }


def planned(recorder: Recorder) -> list[str]:
    """The options that each machine was asked with, as a line; all of them by one process."""
    calls = [call.args for call in recorder.calls if " plan-all " in call.args["command"]]
    assert len(calls) == 1, "each process takes longer to start than a machine to answer"
    return [" ".join(entry["options"]) for entry in json.loads(calls[0]["stdin"])]


def test_a_preview_asks_each_machine_and_up_asks_none() -> None:
    recorder = declare(*SIX, preview=True)
    assert [line.split()[3] for line in planned(recorder)] == [machine.name for machine in SIX]
    asked = [call.args["command"] for call in recorder.calls]
    assert [command for command in asked if "plan-all" in command] == [".venv/bin/python -m talos plan-all --at-once 2"]
    assert sum("factory check" in command for command in asked) == 2
    assert declare(*SIX).calls == []


@pytest.mark.row("opening 14")
@pytest.mark.parametrize("preview", [True, False])
def test_without_a_factory_none_is_asked_and_installs_wait_for_none(*, preview: bool) -> None:
    recorder = declare(*SIX, preview=preview, rollout=rollout(image_factory=None))
    lines = [str(inputs["create"]) for inputs in commands(recorder).values()]
    assert not [
        line for line in (*lines, *(call.args["command"] for call in recorder.calls)) if "talos factory" in line
    ]
    every = commands(declare(*SIX, preview=preview))
    assert {name for name in every if name not in commands(recorder)} == {
        f"machines-nodes-schematic-{letter * 12}" for letter in "ab"
    }


def test_commands_run_in_the_environment_that_the_engine_runs_the_program_in() -> None:
    """Relative to the project, as Pulumi.yaml has it: `python` on PATH would be another one for the plugin."""
    options = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["runtime"]["options"]
    assert machine_commands.talos("plan") == f"{options['virtualenv']}/bin/python -m talos plan"


def test_a_refusal_ends_the_preview_with_every_machine_that_refuses() -> None:
    with pytest.raises(cluster_preview.RefusedError) as caught:
        declare(*SIX, preview=True, change="refused")
    for machine in SIX:
        assert f"{machine.name}: it is refused" in str(caught.value)


def test_an_answer_that_quotes_a_secret_is_shown_nowhere() -> None:
    bundle = examples.bundle()
    require_no_secret("a harmless answer, and the cluster's id " + bundle.cluster_id, BUNDLE)
    for leak in (bundle.trustd_token, bundle.cluster_secret, bundle.bootstrap_token):
        with pytest.raises(LeakError) as caught:
            require_no_secret(f"said {leak}", BUNDLE)
        assert leak not in str(caught.value)


def test_the_words_of_a_node_follow_what_the_site_says() -> None:
    known = machine("hgx-1", fingerprint="c29t")
    assert "--fingerprint c29t" in machine_commands.install(known)
    assert "--insecure" in machine_commands.install(machine("hgx-1"))
    assert machine_commands.bootstrap(SIX[:3]).endswith("--peer cp-2=10.5.0.42 --peer cp-3=10.5.0.43")
    assert "--nvswitch" in machine_commands.check_schematic(known, "https://f", "v1.13.9")


def test_a_rotation_asks_a_control_plane_of_now_for_the_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps an ignored input through a replacement too, so only another resource asks another machine."""
    first = options_of(monkeypatch)["machines-nodes-kubeconfig"]
    assert first.ignore_changes == ["create"]
    rotated = commands(declare(*SIX, rollout=dataclasses.replace(rollout(), credentials_rotation=2)))
    assert "machines-nodes-kubeconfig" not in rotated
    assert "--name cp-1" in rotated["machines-nodes-kubeconfig-2"]["create"]


def test_a_dead_control_plane_is_asked_for_nothing_and_not_waited_for() -> None:
    """`bootstrap` waits for each peer, so a state that is lost with the first control plane would never come back."""
    planes = (machine("cp-1", dead=True), *SIX[1:3])
    assert " --address 10.5.0.42 --name cp-2 --peer cp-3=10.5.0.43" in machine_commands.bootstrap(planes)
    assert " --address 10.5.0.42 --name cp-2" in machine_commands.kubeconfig(planes)
    assert "10.5.0.41" not in machine_commands.bootstrap(planes) + machine_commands.kubeconfig(planes)


def test_commands_keep_their_own_limits_unless_a_program_sets_others() -> None:
    """With the defaults no text of a command changes, so no resource of an existing site changes."""
    ours = rollout(limits=Limits(call_s=1, plan_s=2, install_s=3, bootstrap_s=4, kubeconfig_s=5, health_s=6))
    for preview in (False, True):
        plain, limited = (
            _lines(declare(machine("cp-1"), preview=preview, rollout=wanted)) for wanted in (rollout(), ours)
        )
        assert plain.keys() == limited.keys()
        added = {name: limited[name].removeprefix(line) for name, line in plain.items()}
        assert {name.split()[-1]: words for name, words in added.items() if words} == {
            "install": " --timeout 3s --call-timeout 1s",
            "bootstrap": " --timeout 4s --call-timeout 1s",
            "kubeconfig": " --timeout 5s --call-timeout 1s",
            "roll": " --call-timeout 1s --health-timeout 6s",
            "leave": " --call-timeout 1s",
            **({"plan": " --timeout 2s --call-timeout 1s"} if preview else {}),
        }


def _lines(recorder: Recorder) -> dict[str, str]:
    """Command lines by a name that ends in what they do."""
    ends = {"machines-nodes-cp-1": ("roll", "leave")}
    lines: dict[str, str] = {}
    for name, inputs in commands(recorder).items():
        create, delete = ends.get(name, (name.rpartition("-")[2], "erase"))
        lines |= {f"{name} {create}": inputs["create"], f"{name} {delete}": inputs.get("delete", "")}
    plans = planned(recorder) if recorder.calls else []
    return lines | {f"asked {place} plan": line for place, line in enumerate(plans)}


def test_a_dead_machine_is_taken_out_and_asked_nothing() -> None:
    """Every command that could wait for it forever changes, also in the `up` that marks it dead."""
    dead = machine("cp-3", dead=True)
    assert machine_commands.install(dead) == machine_commands.erase(dead) == "true"
    leaves = machine_commands.leave(dead, drain_timeout_s=5)
    assert " leave " in leaves
    assert " --dead " in leaves
    assert machine_commands.roll(dead, drain_timeout_s=5) == leaves
    assert [line.split()[3] for line in planned(declare(*SIX[:2], dead, preview=True))] == ["cp-1", "cp-2"]


def test_a_preview_lends_machines_the_cluster_to_look_at() -> None:
    asked = [call.args for call in declare(*SIX[:1], preview=True).calls if " plan-all " in call.args["command"]]
    assert [set(call["environment"]) for call in asked] == [{"TALOS_SECRETS_TEXT", "KUBECONFIG_TEXT"}]


def test_a_replaced_node_leaves_before_its_machine_is_installed_anew() -> None:
    """The engine deletes first what depends, by a property, on what is replaced."""
    made = commands(declare(*SIX[:1]))
    assert made["machines-nodes-cp-1"]["triggers"] == [0, "machines-nodes-cp-1-install"]
