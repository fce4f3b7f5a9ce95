"""helm.sh/v3 Release: a chart that helm itself installs, upgrades and uninstalls, hooks included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import yaml

from lab.plugins.kubernetes import diffing, resources
from lab.plugins.kubernetes.awaiting import waiting
from lab.plugins.kubernetes.errors import ApiError, ProviderError
from lab.plugins.kubernetes.helm import Helm, HelmError, Record, opened
from lab.plugins.kubernetes.objects import INPUTS, gvk_of, name_of, namespace_of, split_id, urn_name, urn_type
from lab.plugins.kubernetes.properties import UNKNOWN, Secret, Tree, mark_secrets, plain
from lab.plugins.kubernetes.release_inputs import DEFAULT_TIMEOUT_S, ZEROS, merge
from lab.plugins.kubernetes.resources import Difference, InitializationError, Stored
from lab.plugins.kubernetes.session import Operation

TYPE: Final = "kubernetes:helm.sh/v3:Release"
_REPLACING: Final = (".name", ".namespace")

# Computed by older providers and kept among the inputs.
_FORMER_INPUTS: Final = ("checksum", "resourceNames")
_FLAGS: Final = {
    "atomic": "--rollback-on-failure",
    "cleanupOnFail": "--cleanup-on-fail",
    "createNamespace": "--create-namespace",
    "dependencyUpdate": "--dependency-update",
    "devel": "--devel",
    "disableOpenapiValidation": "--disable-openapi-validation",
    "forceUpdate": "--force-replace",
    "renderSubchartNotes": "--render-subchart-notes",
    "resetValues": "--reset-values",
    "reuseValues": "--reuse-values",
    "skipCrds": "--skip-crds",
    "takeOwnership": "--take-ownership",
}
_FIX: Final = "\n  fix: correct what the reasons name; the state keeps the release, the next `pulumi up` upgrades it"


def is_release(urn: str) -> bool:
    """Whether the resource is a Release."""
    return urn_type(urn) == TYPE


def diff(state: Tree, news: Tree, ignored: list[str]) -> Difference:
    """Compare the release as it is known with new inputs; only another name or namespace replaces it."""
    asked = {**ZEROS, **_old_inputs(state)}
    live = {**ZEROS, **{key: plain(value) for key, value in state.items() if key not in (INPUTS, *_FORMER_INPUTS)}}
    changes = diffing.compare(_shaped(live, asked), plain(news), asked, _REPLACING)
    changes = diffing.without_ignored(changes, ignored)
    replaces = [path for path, change in changes.items() if change.replaces]
    return Difference(changes, replaces, delete_before_replace=False, changed=bool(changes))


def _old_inputs(state: Tree) -> Tree:
    inputs = plain(state.get(INPUTS)) or {}
    return {key: value for key, value in inputs.items() if key not in _FORMER_INPUTS}


def _shaped(live: Tree, shape: Tree) -> Tree:
    """What was asked for, as it is now; whole lists, since helm replaces these as a whole."""
    return {
        key: _shaped(live[key], wanted) if isinstance(live[key], dict) and isinstance(wanted, dict) else live[key]
        for key, wanted in shape.items()
        if key in live
    }


def create(operation: Operation, inputs: Tree) -> Stored:
    """Install the release. Raises InitializationError if it is there but failed."""
    if operation.preview:
        return Stored("", _state(inputs, None))
    known = plain(inputs)
    with opened(operation.session) as helm:
        _need_cluster(operation, "create", known)
        present = helm.record(known["name"], known["namespace"])
        if present is not None and present.status != "uninstalled":
            _take_over(operation, known, present)
        return _apply(operation, helm, inputs, present, hooks=not known["disableWebhooks"])


def _take_over(operation: Operation, known: Tree, present: Record) -> None:
    if operation.session.config.upsert or known["replace"]:
        operation.warn(f"release {_id(known)} is there already ({present.status}): it is taken over")
        return
    raise ProviderError(
        f"release {_id(known)} is there already, revision {present.revision}, {present.status}; a create never takes "
        f"it over\n  fix: `pulumi import {TYPE} {urn_name(operation.urn)} {_id(known)}`, or set its replace input, or "
        f"upsertExistingObjects on the provider, or `helm uninstall {known['name']} --namespace {known['namespace']}`"
    )


def update(operation: Operation, resource_id: str, news: Tree) -> Stored:
    """Upgrade the release. Raises InitializationError if the upgrade failed or was taken back."""
    if operation.preview:
        return Stored(resource_id, _state(news, None))
    known = plain(news)
    with opened(operation.session) as helm:
        _need_cluster(operation, "update", known)
        present = helm.record(known["name"], known["namespace"])
        return _apply(operation, helm, news, present, hooks=not known["disableCRDHooks"])


def _need_cluster(operation: Operation, verb: str, known: Tree) -> None:
    if operation.session.reachable is None:
        raise ProviderError(f"cannot {verb} release {_id(known)}: {operation.session.unreachable_text}")


def _id(known: Tree) -> str:
    return f"{known['namespace']}/{known['name']}"


def _apply(operation: Operation, helm: Helm, inputs: Tree, present: Record | None, *, hooks: bool) -> Stored:
    known = plain(inputs)
    name, namespace = known["name"], known["namespace"]
    path = helm.chart(known)
    values = helm.write("values.json", json.dumps(known["values"]))
    if known["recreatePods"]:
        operation.warn("recreatePods does nothing: helm has no such option any more")
    if known["lint"]:
        helm.run("lint", str(path), "--values", str(values), cluster=False)
    if present is not None and present.under_way:
        operation.warn(f"release {_id(known)} was left {present.status}: {helm.unlock(present)}")
        present = helm.record(name, namespace)
    command = ["upgrade", "--install", name, str(path), "--namespace", namespace, "--values", str(values)]
    command += [flag for key, flag in _FLAGS.items() if known[key]]
    command += [
        "--timeout",
        f"{known['timeout'] or DEFAULT_TIMEOUT_S}s",
        "--history-max",
        str(known.get("maxHistory") or 0),
    ]
    # As in helm 3, which the official provider carries: client-side apply, and its own way of waiting.
    command += ["--server-side=false", "--hide-notes", "--output=json"]
    command.append(f"--wait={'hookOnly' if known['skipAwait'] and not known['atomic'] else 'legacy'}")
    if known["waitForJobs"] and not known["skipAwait"]:
        command.append("--wait-for-jobs")
    command += [] if hooks else ["--no-hooks"]
    command += ["--description", known["description"]] if known["description"] else []
    operation.status("helm upgrades" if present else "helm installs")
    try:
        helm.run(*command)
    except HelmError as error:
        record = helm.record(name, namespace)
        operation.session.cluster.kinds_changed()
        if record is None or (present is not None and record.revision == present.revision):
            raise ProviderError(f"helm cannot install release {_id(known)}: {error}") from error
        message = f"release {_id(known)} is {record.status} at revision {record.revision}: {error}{_FIX}"
        stored = Stored(_id(known), _state(inputs, record))
        raise InitializationError(message, stored, _problems(operation, record)) from error
    operation.session.cluster.kinds_changed()
    record = helm.record(name, namespace)
    if record is None:
        raise ProviderError(f"release {_id(known)} is gone right after helm installed it: someone uninstalled it")
    return Stored(_id(known), _state(inputs, record))


def _state(inputs: Tree, record: Record | None) -> Tree:
    """What the engine keeps: the inputs with what helm recorded; without a record, a preview of it."""
    state = dict(inputs)
    if record is None:
        state |= {"resourceNames": UNKNOWN, "status": UNKNOWN}
    else:
        known = plain(inputs)
        state |= {
            "values": merge(known["values"], record.values),
            "version": record.chart_version,
            "resourceNames": _resource_names(record.manifest),
            "status": {
                "appVersion": record.app_version,
                "chart": record.chart,
                "name": record.name,
                "namespace": record.namespace,
                "revision": record.revision,
                "status": record.status,
                "version": record.chart_version,
            },
        }
        mark_secrets(state, inputs)
    state[INPUTS] = Secret(inputs)
    return state


def _resource_names(manifest: str) -> dict[str, list[str]]:
    """Names of the chart's objects by `Kind.group/apiVersion`."""
    by_kind: dict[str, set[str]] = {}
    for obj in _objects(manifest):
        gvk = gvk_of(obj)
        kind = f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind
        namespace = namespace_of(obj)
        name = f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)
        by_kind.setdefault(f"{kind}/{gvk.api_version}", set()).add(name)
    return {key: sorted(names) for key, names in by_kind.items()}


def _objects(manifest: str) -> list[Tree]:
    documents = yaml.load_all(manifest, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [document for document in documents if isinstance(document, dict) and document.get("kind")]


def _problems(operation: Operation, record: Record) -> list[str]:
    """Why objects of a failed release are not ready, its failed hooks among them."""
    failed = [hook for hook in record.hooks if (hook.get("last_run") or {}).get("phase") in ("Failed", "Running")]
    problems: list[str] = []
    for obj in _objects("\n---\n".join([record.manifest, *(str(hook.get("manifest") or "") for hook in failed)])):
        try:
            live = operation.session.cluster.get(gvk_of(obj), name_of(obj), namespace_of(obj) or record.namespace)
            problems += [f"{obj['kind']} {name_of(obj)}: {text}" for text in waiting.look_once(operation, obj, live)]
        except (ApiError, ProviderError):
            # Explaining a failure must not become one.
            continue
    return problems


def read(operation: Operation, resource_id: str, state: Tree, inputs: Tree) -> Stored | None:
    """The release as it is now; None means that it is gone. A failed one raises InitializationError."""
    if operation.session.reachable is None:
        return resources.read_unreachable(operation, resource_id, state, inputs)
    known = plain({key: value for key, value in state.items() if value is not None})
    namespace, name = split_id(resource_id)
    name, namespace = known.get("name") or name, known.get("namespace") or namespace
    if not name:
        raise ProviderError(f'"{resource_id}" names no release: an id is namespace/name')
    namespace = namespace or operation.session.default_namespace
    with opened(operation.session) as helm:
        record = helm.record(name, namespace)
    if record is None:
        return None
    kept = state.get(INPUTS)
    asked = kept.value if isinstance(kept, Secret) else kept
    if not isinstance(asked, dict):
        asked = _imported(record)
    asked = {**ZEROS, **{key: value for key, value in asked.items() if key not in _FORMER_INPUTS}}
    stored = Stored(resource_id or f"{namespace}/{name}", _state(asked, record), asked)
    if not record.deployed:
        message = f"release {namespace}/{name} is {record.status} at revision {record.revision}: {record.description}"
        raise InitializationError(message, stored, _problems(operation, record))
    return stored


def _imported(record: Record) -> Tree:
    """What a program would have to declare; helm does not keep where a chart came from."""
    local = Path(record.chart)
    chart = f"./{local}" if (local / "Chart.yaml").exists() else record.chart
    return {
        "chart": chart,
        "name": record.name,
        "namespace": record.namespace,
        "timeout": DEFAULT_TIMEOUT_S,
        "values": record.values,
        "version": record.chart_version,
    }


def delete(operation: Operation, resource_id: str, state: Tree) -> None:
    """Uninstall the release; one that is gone already is fine."""
    if operation.session.reachable is None:
        resources.delete_unreachable(operation, resource_id)
        return
    known = {**ZEROS, **plain(state)}
    command = ["uninstall", known["name"], "--namespace", known["namespace"], "--ignore-not-found"]
    if known["atomic"] or not known["skipAwait"]:
        command += ["--wait=legacy", "--timeout", f"{known['timeout'] or DEFAULT_TIMEOUT_S}s"]
    with opened(operation.session) as helm:
        try:
            output = helm.run(*command)
        except HelmError as error:
            raise ProviderError(f"helm cannot uninstall release {resource_id}: {error}") from error
    operation.session.cluster.kinds_changed()
    kept = [line for line in output.strip().splitlines() if not line.startswith("release ")]
    if kept:
        operation.warn("helm: " + " ".join(kept))
