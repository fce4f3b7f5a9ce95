"""The provider that the engine talks to: checks, diffs, and runs the scripts of a Command's life."""

# The protocol sets the names and arguments of its methods.
# ruff: noqa: N802, ARG002

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from lab.plugins import values
from lab.plugins.command import inputs
from lab.plugins.command.globs import matching_files
from lab.plugins.command.process import CommandFailedError, Job, JobRunner, Redactor, Result
from lab.plugins.protocol import EngineLog, invoked

VERSION = "1.2.1"
_COMMAND = "command:local:Command"
_RUN = "command:local:run"
_PREVIOUS = {"stdout": "PULUMI_COMMAND_STDOUT", "stderr": "PULUMI_COMMAND_STDERR"}
_LOGGED = {
    "stdout": frozenset({"stdout"}),
    "stderr": frozenset({"stderr"}),
    "stdoutAndStderr": frozenset({"stdout", "stderr"}),
    "none": frozenset[str](),
}


class CommandProvider(provider_pb2_grpc.ResourceProviderServicer):
    """`command:local:*` of pulumi-command; every method is one call of the engine's provider protocol."""

    def __init__(self, log: EngineLog, runner: JobRunner) -> None:
        self._log = log
        self._runner = runner

    # ---- what the provider is

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": "command", "version": VERSION}))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Cancel(self, request: Any, context: Any) -> Any:
        self._runner.cancel()
        return empty_pb2.Empty()

    # ---- what a resource sets

    def Check(self, request: Any, context: Any) -> Any:
        self._refuse_other_kinds(request.urn, context)
        given = values.from_struct(request.news)
        return provider_pb2.CheckResponse(
            inputs=values.to_struct(inputs.accepted(given)),
            failures=[
                provider_pb2.CheckFailure(property=name, reason=reason)
                for name, reason in inputs.failures(given).items()
            ],
        )

    def Diff(self, request: Any, context: Any) -> Any:
        old = inputs.accepted(values.from_struct(request.old_inputs or request.olds))
        new = inputs.accepted(values.from_struct(request.news))
        for name in request.ignoreChanges:
            if name in old:
                new[name] = old[name]
        changed = inputs.changes(old, new)
        # The SDK asks for the replacement too; the official plugin's schema marks the same input.
        replaced = {path for path in changed if path.split("[")[0].split(".")[0] == inputs.REPLACED_BY}
        kinds = provider_pb2.PropertyDiff.Kind
        detailed = {
            path: provider_pb2.PropertyDiff(
                kind=kinds.Value(f"{kind.upper()}_REPLACE" if path in replaced else kind.upper())
            )
            for path, kind in changed.items()
        }
        some, none = provider_pb2.DiffResponse.DIFF_SOME, provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=some if changed else none,
            diffs=sorted(changed),
            replaces=sorted(replaced),
            detailedDiff=detailed,
            hasDetailedDiff=True,
        )

    def Read(self, request: Any, context: Any) -> Any:
        # A command that ran leaves nothing to look at: what is recorded is what is true.
        return provider_pb2.ReadResponse(id=request.id, inputs=request.inputs, properties=request.properties)

    # ---- what runs

    def Create(self, request: Any, context: Any) -> Any:
        properties = values.from_struct(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=values.to_struct(_previewed(properties, properties)))
        state = {**properties, "stdout": "", "stderr": ""}
        if "create" in properties:
            state |= self._run(request.urn, properties["create"], state, request.timeout, context)
        name = request.urn.rsplit("::", 1)[-1]
        return provider_pb2.CreateResponse(id=name + secrets.token_hex(4), properties=values.to_struct(state))

    def Update(self, request: Any, context: Any) -> Any:
        properties = inputs.accepted(values.from_struct(request.news))
        outputs = _outputs(values.from_struct(request.olds))
        script = properties.get("update", properties.get("create"))
        if request.preview:
            state = {**properties, **outputs}
            if script is not None:
                state = _previewed(properties, state)
            return provider_pb2.UpdateResponse(properties=values.to_struct(state))
        state = {**properties, **outputs}
        if script is not None:
            state |= self._run(request.urn, script, state, request.timeout, context)
        return provider_pb2.UpdateResponse(properties=values.to_struct(state))

    def Delete(self, request: Any, context: Any) -> Any:
        state = values.from_struct(request.properties)
        if "delete" in state:
            self._run(request.urn, state["delete"], state, request.timeout, context)
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        if request.tok != _RUN:
            self._fail(context, f"this stand-in has no function {request.tok}; it has {_RUN}")
        given = inputs.accepted(values.from_struct(request.args), inputs.RUN_RULES)
        failures = inputs.failures(given, inputs.RUN_RULES)
        if "command" not in given:
            failures["command"] = "it is missing, allowed is a string"
        if failures:
            return provider_pb2.InvokeResponse(
                failures=[provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in failures.items()]
            )
        # No resource to show lines at: the stack's own row takes them.
        results = self._run("", given["command"], {**given, "stdout": "", "stderr": ""}, 0.0, context)
        return invoked(values.to_struct({**given, **results}))

    # ---- how

    def _run(self, urn: str, script: Any, state: Mapping[str, Any], timeout_s: float, context: Any) -> dict[str, Any]:
        """Run one script of a resource; the outputs that it changes. Ends the call with an error when it fails."""
        bare = values.plain(dict(state))
        job = Job(
            command=values.plain(script),
            interpreter=bare.get("interpreter") or Job.interpreter,
            stdin=bare.get("stdin") or "",
            folder=Path.cwd() / bare.get("dir", ""),
            environment=_environment(bare),
            timeout_s=timeout_s,
            logged=_LOGGED[bare.get("logging", "stdoutAndStderr")],
            redact=Redactor(values.secret_texts(dict(state))),
        )
        try:
            result = self._runner.run(job, lambda line: self._log.status(urn, line))
        except CommandFailedError as failure:
            self._fail(context, str(failure))
        return _results(result, bare, job.folder)

    def _refuse_other_kinds(self, urn: str, context: Any) -> None:
        kind = urn.split("::")[2].rsplit("$", 1)[-1]
        if kind != _COMMAND:
            self._fail(
                context,
                f"this stand-in for pulumi-command serves {_COMMAND}, not {kind}; use the official plugin for that, "
                "or run the remote program from a local command",
            )

    def _fail(self, context: Any, message: str) -> NoReturn:
        context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort raises")


def _environment(bare: Mapping[str, Any]) -> dict[str, str]:
    merged = {**os.environ, **bare.get("environment", {})}
    if bare.get("addPreviousOutputInEnv", True):
        merged |= {variable: bare[name] for name, variable in _PREVIOUS.items() if bare.get(name)}
    return merged


def _outputs(state: Mapping[str, Any]) -> dict[str, Any]:
    """What earlier runs left in the state, besides the inputs."""
    kept = {name: state[name] for name in ("assets", "archive") if state.get(name) is not None}
    return {"stdout": state.get("stdout", ""), "stderr": state.get("stderr", ""), **kept}


def _previewed(properties: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with every output unknown that the run will set."""
    unknown = {"stdout": values.UNKNOWN, "stderr": values.UNKNOWN}
    unknown |= {"assets": values.UNKNOWN} if "assetPaths" in properties else {}
    unknown |= {"archive": values.UNKNOWN} if "archivePaths" in properties else {}
    return {**state, **unknown}


def _results(result: Result, bare: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    outputs: dict[str, Any] = {"stdout": result.stdout, "stderr": result.stderr}
    if "assetPaths" in bare:
        outputs["assets"] = _assets(folder, bare["assetPaths"])
    if "archivePaths" in bare:
        outputs["archive"] = {values.SIGNATURE: values.ARCHIVE, "assets": _assets(folder, bare["archivePaths"])}
    return outputs


def _assets(folder: Path, rules: list[str]) -> dict[str, Any]:
    return {
        name: {
            values.SIGNATURE: values.ASSET,
            "path": str(folder / name),
            "hash": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
        for name in matching_files(folder, rules)
    }
