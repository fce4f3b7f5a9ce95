"""A site that is there must not notice a program that is put together in another way.

The program of the tree LANDED brings its own site up, as plain as that of the tests. The checkout's program then has
nothing to do on it, and leaves its state as it is. On this platform the next modules of the group go on.

A change that sites are meant to get is written into MEANT, and what their users have to write for it into `_edit`. At a
release, set LANDED to its tree (`git rev-parse v1.2.3^{tree}`) and empty both again. A raised pin of the bundle (a
CRD, a chart) moves LANDED on to its own tree, by the next commit: the earlier program refuses the new bundle.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import session
from lab.paths import CHECKOUT, Lab
from tests import documented
from tests.lab.groups import group_of
from tests.lab.plain_site import plain_text
from tests.lab.site.cluster_objects import declared, inventory, kubectl
from tests.lab.site.conftest import Platforms
from tests.lab.site.project_copies import NoRevisionError, commit_of, project_at
from tests.lab.site.pulumi_runs import SITE, Document, Pulumi
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("C.04", "C.05")

# Earlier programs register no taints, and this lab refuses a kubelet that changes taints, as a cluster does: their
# sites do not come up in it.
LANDED = "0eb8b6192206fa56e63de4293dc48993dac8d9bf"
_MODELS = ("glm-5-1", "qwen3-32b")
# Below spec.template.spec, where a pod mounts the program and its order as two volumes.
_OF_JOBS = (
    "containers[0].args[1]",
    "containers[0].args[2]",
    "containers[0].volumeMounts[1].mountPath",
    "containers[0].volumeMounts[1].name",
    "containers[0].volumeMounts[1].readOnly",
    "containers[0].volumeMounts[2]",
    "volumes[0].configMap.name",
    "volumes[1].configMap",
    "volumes[1].name",
    "volumes[1].persistentVolumeClaim",
    "volumes[2]",
)
_OF_SERVERS = (
    "initContainers[0].args[0]",
    "initContainers[0].args[1]",
    "initContainers[0].args[2]",
    "initContainers[0].args[3]",
    "initContainers[0].args[4]",
    "initContainers[0].volumeMounts[1].mountPath",
    "initContainers[0].volumeMounts[1].name",
    "initContainers[0].volumeMounts[1].subPath",
    "initContainers[0].volumeMounts[2]",
    "volumes[1].configMap.name",
    "volumes[2].name",
)
_OF_ONE = {
    "glm-5-1": (
        "volumes[2].configMap",
        "volumes[2].emptyDir",
        "volumes[3].configMap",
        "volumes[3].emptyDir",
        "volumes[3].name",
        "volumes[4]",
    ),
    "qwen3-32b": ("volumes[2].configMap.name", "volumes[3]"),
}


def _in_pods(*paths: str) -> tuple[str, ...]:
    return tuple(sorted(f"spec.template.spec.{path}" for path in paths))


# `type::name` of a resource -> operation and paths of properties, for each change since LANDED that sites are to get.
MEANT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{
        f"command:local:Command::crds-{source}": ("create", ())
        for source in ("ai-gateway", "envoy-gateway", "gateway-api", "inference-extension")
    },
    # The programs of pods are once per namespace: new ones first, then who mounts them, and those of each model last.
    **{f"kubernetes:core/v1:ConfigMap::pod-programs-{name}": ("create", ()) for name in ("liveness", "weights")},
    **{f"kubernetes:core/v1:ConfigMap::{model}-order": ("create", ()) for model in _MODELS},
    **{
        f"kubernetes:batch/v1:Job::{model}-{job}": ("replace", _in_pods(*_OF_JOBS))
        for model in _MODELS
        for job in ("bring", "prune")
    },
    **{
        f"kubernetes:apps/v1:Deployment::{model}-server": ("update", _in_pods(*_OF_SERVERS, *_OF_ONE[model]))
        for model in _MODELS
    },
    **{
        f"kubernetes:core/v1:ConfigMap::{model}-{name}": ("delete", ())
        for model in _MODELS
        for name in ("program", "liveness-program")
    },
    # CONNECT, and two Host headers, are refused in words of their own.
    "kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyPatchPolicy::gateway-errors": (
        "update",
        tuple(f"spec.jsonPatches[0].operation.value.mappers[7].filter.{kind}_filter" for kind in ("and", "or")),
    ),
    # A replica that serves nothing keeps no node from being drained.
    **{
        f"kubernetes:policy/v1:PodDisruptionBudget::{model}-budget": ("update", ("spec.unhealthyPodEvictionPolicy",))
        for model in _MODELS
    },
    # Each picker's patches are a policy of its own, and the front door's go.
    **{
        f"kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyPatchPolicy::front-door-{model}-picker": ("create", ())
        for model in _MODELS
    },
    "kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyPatchPolicy::front-door-filters": (
        "update",
        tuple(
            sorted(
                f"spec.jsonPatches{path}"
                for path in (
                    *(f"[{index}]" for index in range(9, 15)),
                    *(f"[{index}].operation.value.typed_config.default_source_code.inline_string" for index in (5, 6)),
                    *(f"[7].{key}" for key in ("name", "operation.path", "operation.value", "type")),
                    *(f"[8].{key}" for key in ("name", "operation.op", "operation.path", "operation.value", "type")),
                )
            )
        ),
    ),
}
_CREATED: tuple[str, tuple[str, ...]] = ("create", ())
# What no preview shows and the state has otherwise: components and their outputs, and what pickers and the proxy wait
# for.
MEANT_IN_STATE = {
    "inference-platform:pod_programs:PodPrograms::pod-programs",
    "inference-platform:crd_bundle:CrdBundle::crds",
    *(f"kubernetes:apps/v1:Deployment::{model}-picker" for model in _MODELS),
    "kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyProxy::gateway-proxy",
}
# What the engine notes of a resource beside what the program wants of it.
_NOTES = ("created", "modified", "aliases", "sourcePosition", "stackTrace")
HELD = ":CustomResourceDefinition::"
DEFINITIONS = ("get", "crd", "-o", "jsonpath={.items[*].metadata.uid}")
_DEFAULT_PROVIDER = re.compile(r"::pulumi:providers:\w+::default_")


def _edit(site: Document) -> None:
    """What a user has to change in the site's file before the checkout's program takes it: nothing since LANDED."""


@pytest.fixture(scope="module")
def earlier() -> Iterator[Path]:
    """The project as it was landed, with the stack file for this lab."""
    try:
        with project_at(commit_of(LANDED)) as project:
            file = _stack_file(project)
            file.write_text(session.moved(plain_text(file), Lab.from_environment().network))
            yield project
    except NoRevisionError as error:
        raise pytest.fail.Exception(f"{Path(__file__).name}: LANDED: {error}", pytrace=False) from None


@pytest.fixture(scope="module")
def site(platforms: Platforms, earlier: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The platform that the earlier program has installed, proven to answer; afterwards the checkout's site."""
    options = ("--config-file", str(_stack_file(earlier)))
    site = platforms.of(group_of(request.node.path), *options, project=earlier)
    yield site
    own, theirs = (yaml.safe_load(file.read_text()) for file in (session.stack_file(site.lab), _stack_file(earlier)))
    if own != theirs:
        session.run_pulumi(site.lab, "up", "--yes", "--skip-preview", "--stack", session.STACK)


@pytest.fixture(scope="module")
def pulumi(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Pulumi:
    """Runs the checkout's program."""
    return Pulumi(site.lab, tmp_path_factory.mktemp("stack"))


@pytest.fixture(scope="module")
def file(earlier: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Options that give the site as its users have it to the checkout's program."""
    document = yaml.safe_load(_stack_file(earlier).read_text())
    _edit(document["config"][SITE])
    edited = tmp_path_factory.mktemp("file") / f"Pulumi.{session.STACK}.yaml"
    edited.write_text(yaml.safe_dump(document, sort_keys=False))
    return "--config-file", str(edited)


@pytest.fixture(scope="module")
def steps(pulumi: Pulumi, file: tuple[str, str]) -> list[dict[str, Any]]:
    """Every step of a preview of the checkout's program, those that leave a resource as it is too."""
    previewed: list[dict[str, Any]] = json.loads(pulumi("preview", "--json", "--show-sames", *file).stdout)["steps"]
    return previewed


def test_definitions_that_the_state_has_as_objects_are_released(
    site: Site, pulumi: Pulumi, file: tuple[str, str]
) -> None:
    """An `up` would end by deleting them, with every object of their kinds."""
    before = kubectl(site.lab, *DEFINITIONS)
    refused = pulumi("up", "--yes", "--skip-preview", *file, check=False)
    assert refused.returncode != 0
    assert "of these definitions as objects" in refused.stdout + refused.stderr
    assert any(HELD in urn for urn in pulumi.resources())
    command = documented.shell("python -m definitions release --stack berlin").replace("berlin", session.STACK)
    subprocess.run(["sh", "-c", command], cwd=CHECKOUT, env=session.environment(site.lab), check=True)
    assert not any(HELD in urn for urn in pulumi.resources())
    assert kubectl(site.lab, *DEFINITIONS) == before


def test_a_preview_has_nothing_to_do(pulumi: Pulumi, steps: list[dict[str, Any]]) -> None:
    """The `up` that was refused before it may have made some of what is new."""
    made = {key for step in steps if MEANT.get(key := _key(step["urn"])) == _CREATED and step["op"] == "same"}
    changes = {_key(step["urn"]): (step["op"], _paths(step)) for step in steps if step["op"] != "same"}
    changes |= dict.fromkeys(made, _CREATED)
    noticed = [_described(step) for step in steps if changes.get(_key(step["urn"])) != MEANT.get(_key(step["urn"]))]
    assert not noticed, f"of {len(steps)} resources, a site would notice:\n" + "\n".join(noticed)
    assert changes == MEANT
    looked_at = {step["oldState"]["urn"] for step in steps if "oldState" in step}
    # No preview shows the providers that the engine makes by itself.
    assert looked_at == {urn for urn in pulumi.resources() if not _DEFAULT_PROVIDER.search(urn)}


def test_an_up_leaves_objects_state_and_outputs_as_they_are(
    pulumi: Pulumi, steps: list[dict[str, Any]], file: tuple[str, str]
) -> None:
    """Protection, order and time limits are in the state alone: no preview shows them."""
    moved = {step["oldState"]["urn"]: step["urn"] for step in steps if "oldState" in step}
    objects, kept, outputs = declared(inventory(pulumi.lab)), _kept(pulumi, moved), _outputs(pulumi)
    assert outputs.keys() >= {"keys", "kubeconfig", "talosconfig"}
    pulumi("up", "--yes", "--skip-preview", *([] if MEANT else ["--expect-no-changes"]), *file)
    after = _kept(pulumi, {})
    noticed = [
        f"  {urn}: {', '.join(_differing(kept.get(urn, {}), after.get(urn, {})))}"
        for urn in sorted(kept.keys() | after.keys())
        if kept.get(urn) != after.get(urn) and _key(urn) not in (*MEANT, *MEANT_IN_STATE)
    ]
    assert not noticed, "the state says otherwise of these:\n" + "\n".join(noticed)
    assert _outputs(pulumi) == outputs
    if not MEANT:
        assert declared(inventory(pulumi.lab)) == objects


def _stack_file(project: Path) -> Path:
    return project / f"Pulumi.{session.STACK}.yaml"


def _key(urn: str) -> str:
    """Type and name of a resource, wherever it is in the tree; several have one name."""
    return urn.split("::", 2)[2].rpartition("$")[2]


def _paths(step: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(step.get("detailedDiff") or {}))


def _described(step: Mapping[str, Any]) -> str:
    keys = ", ".join(_paths(step) or step.get("diffReasons") or ())
    return f"  {step['op']} {step['urn']}" + (f": {keys}" if keys else "")


def _outputs(pulumi: Pulumi) -> Document:
    outputs: Document = json.loads(pulumi("stack", "output", "--json", "--show-secrets").stdout)
    return outputs


def _differing(first: Document, other: Document) -> list[str]:
    return sorted(key for key in first.keys() | other.keys() if first.get(key) != other.get(key))


def _kept(pulumi: Pulumi, moved: Mapping[str, str]) -> dict[str, Document]:
    """What the state holds of each resource, under the URNs that aliases give them."""
    text = json.dumps(pulumi.resources())
    for old, new in moved.items():
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old}::', f'"{new}::')
    resources: dict[str, Document] = json.loads(text)
    return {
        urn: {name: _in_order(name, part) for name, part in resource.items() if name not in _NOTES}
        for urn, resource in resources.items()
    }


def _in_order(name: str, part: Any) -> Any:
    """Dependencies come out of sets of the SDK, in another order each time."""
    if name == "dependencies":
        return sorted(urn for urn in part if _key(urn) not in MEANT)
    return {key: sorted(urns) for key, urns in part.items()} if name == "propertyDependencies" else part
