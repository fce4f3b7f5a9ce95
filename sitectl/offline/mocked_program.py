"""Runs a checkout's program for some stacks without engine or cluster, and records what it declares.

A program of its own, run by `checkout` in the checkout's folder with arguments OUT NAME=FILE...: of this package it
imports `mocked_registration` and `mocked_machines` alone, so that it runs the program of any revision. FILE is the
stack file's content in JSON. The bundle's CRDs and pod network are left out, because they are pinned by digest in
versions.yaml and not always on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf.struct_pb2 import Struct, Value
from pulumi.runtime import proto, rpc
from pulumi.runtime.mocks import MockMonitor, Mocks, set_mocks
from pulumi.runtime.settings import SETTINGS, set_root_resource
from pulumi.runtime.stack import run_in_stack

from sitectl.offline.mocked_machines import ShownMachines
from sitectl.offline.mocked_registration import COMMAND, LATER, SECRET, registered_at_once

PROJECT = "inference-platform"
KEY = f"{PROJECT}:site"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105
# Where the SDK's resources find what registers them.
_resources: Any = importlib.import_module("pulumi.resource")
_sdk_register = _resources.register_resource


class _NoMocks(Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        # The calls of the program ask machines what `up` would do with them; an older revision asks one at a time.
        nothing_asked = {"change": "none", "says": "not asked"}
        if " plan-all " in args.args["command"]:
            return {"stdout": json.dumps([nothing_asked for _ in json.loads(args.args["stdin"])])}, []
        return {"stdout": json.dumps(nothing_asked)}, []


class Inline(ThreadPoolExecutor):
    """Runs what it gets at once: the SDK hands each registration to a thread, and here none of them waits for anything.

    An executor of threads by its base alone, as an event loop takes no other.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the one who waits for it gets it
            done.set_exception(error)
        return done


class Recorder(MockMonitor):
    """Answers as an engine does in a preview, and keeps every registration with its secrets hidden."""

    def __init__(self) -> None:
        super().__init__(_NoMocks())
        self.declared: list[dict[str, Any]] = []
        self.machines = ShownMachines()

    def keep(self, type_: str, name: str, inputs: Any, *, protect: bool | None, retain: bool | None) -> None:
        """Record a resource of a provider."""
        self.declared.append(
            {"type": type_, "name": name, "inputs": inputs, "protect": bool(protect), "retain": bool(retain)}
        )

    def Invoke(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        args = pulumi.runtime.MockCallArgs(request.tok, rpc.deserialize_properties(request.args), request.provider)
        response = proto.provider_pb2.InvokeResponse()
        # A word of Python, which no attribute can be called.
        getattr(response, "return").update(self.mocks.call(args)[0])
        return response

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        if request.custom:
            inputs = plain(request.object)
            self.keep(request.type, request.name, inputs, protect=request.protect, retain=request.retainOnDelete)
        urn = self.make_urn(request.parent, request.type, request.name)
        outputs = Struct()
        outputs.CopyFrom(request.object)
        if request.type == COMMAND:
            # What a command prints is a key or a cluster's secrets: made by `up` alone, and secret all the way.
            outputs.update({"stdout": {_SIGNATURE: _SECRET_SIGNATURE, "value": rpc.UNKNOWN}})
        # No id: to the program it is known after `up` alone, as in a preview.
        return proto.resource_pb2.RegisterResourceResponse(urn=urn, object=outputs)


def plain(value: Any) -> Any:
    """A protobuf struct as plain data: whole numbers as int, secrets and unknown values as text."""
    if isinstance(value, Struct):
        if _SIGNATURE in value.fields:
            secret = value.fields[_SIGNATURE].string_value == _SECRET_SIGNATURE
            return SECRET if secret else LATER
        return {key: plain(inner) for key, inner in value.fields.items()}
    if not isinstance(value, Value):
        return value
    match value.WhichOneof("kind"):
        case "struct_value":
            return plain(value.struct_value)
        case "list_value":
            return [plain(inner) for inner in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return LATER if value.string_value == rpc.UNKNOWN else value.string_value
        case "bool_value":
            return value.bool_value
    return None


def declared(stack: str, file: Path, *, enforce_rules: bool = False) -> list[dict[str, Any]]:
    """What the program in the current folder declares for the stack of that file."""
    return recorded(stack, file, enforce_rules=enforce_rules).declared


def recorded(stack: str, file: Path, *, enforce_rules: bool = False) -> Recorder:
    """The same with the stack's machines.

    The program's own rules stay out unless they are asked for: a site that breaks one can be looked at all the same.
    The SDK keeps what it knows in context variables, so that an empty context has nothing of a site before this one.
    """
    return contextvars.Context().run(_recorded, stack, file, enforce_rules=enforce_rules)


def _recorded(stack: str, file: Path, *, enforce_rules: bool) -> Recorder:
    if not enforce_rules:
        _leave_rules_out()
    _leave_reports_out()
    document = json.loads(file.read_text())
    config = document.get("config") if isinstance(document, dict) else None
    config = config if isinstance(config, dict) else {}
    recorder = Recorder()
    _leave_files_out(config.get(KEY), recorder.machines)
    loop = asyncio.new_event_loop()
    # What the program ended with is its result; of what waited for that, each would print the same once more.
    loop.set_exception_handler(lambda *_: None)
    loop.set_default_executor(Inline())
    asyncio.set_event_loop(loop)
    # The one that the mocks leave as it is.
    SETTINGS.outputs = set()
    set_mocks(_NoMocks(), project=PROJECT, stack=stack, preview=True, monitor=recorder)
    # The mocks make a stack where there is none.
    set_root_resource(None)  # type: ignore[arg-type]
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in config.items()
        if not (isinstance(value, dict) and "secure" in value)
    }
    pulumi.runtime.set_all_config(texts)
    # Secrets of a site may be set on the machine that runs `up` alone.
    pulumi.Config.require_secret = lambda _, key: pulumi.Output.secret(f"[secret {key}]")  # type: ignore[method-assign, assignment]
    _resources.register_resource = registered_at_once(recorder, _sdk_register)
    try:
        loop.run_until_complete(run_in_stack(_run))
    finally:
        _resources.register_resource = _sdk_register
    loop.close()
    recorder.declared.sort(key=lambda resource: (resource["type"], resource["name"]))
    return recorder


def _leave_files_out(site: Any, machines: ShownMachines) -> None:
    """What a site reads from disk is left to others, where it has the form of a site; else the program reports it."""
    if not isinstance(site, dict):
        return
    crds, cluster = site.get("crds", {}), site.get("cluster")
    if isinstance(crds, dict):
        site["crds"] = {**crds, "owner": "external"}
    # The pod network is Cilium's with nothing in the manifest's place, or of an older revision's program external.
    if not machines.watch() and isinstance(cluster, dict) and isinstance(cluster.get("machines"), dict):
        cluster["machines"]["cni"] = "external"


def _leave_rules_out() -> None:
    # An older revision's program has them in another place, or knows none.
    for place in ("stacks.program.site_rules", "stacks.site_rules"):
        with contextlib.suppress(ImportError):
            rules: Any = importlib.import_module(place)
            rules.enforced = lambda *_: contextlib.nullcontext()


def _leave_reports_out() -> None:
    # Nothing of it is shown here, and half of a proof is for the report alone. An older revision's program makes it.
    with contextlib.suppress(ImportError):
        reports: Any = importlib.import_module("stacks.program.reports")
        reports.show = lambda _: None


def _run() -> None:
    runpy.run_path("__main__.py", run_name="__main__")


def main(arguments: list[str], *, enforce_rules: bool = False) -> int:
    """Write {stack: {"resources": [...], "seconds": n} or {"error": text}} to the first argument."""
    out, *stacks = arguments
    sys.path.insert(0, str(Path.cwd()))
    results: dict[str, Any] = {}
    for named in stacks:
        stack, _, file = named.partition("=")
        began = time.monotonic()
        try:
            record = recorded(stack, Path(file), enforce_rules=enforce_rules)
            results[stack] = {
                "resources": record.declared,
                "machines": record.machines.shown,
                "seconds": time.monotonic() - began,
            }
        except pulumi.RunError as error:
            results[stack] = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - the program of another revision may fail in any way
            if reason := _lack(error):
                print(reason, file=sys.stderr)
                return os.EX_OSERR
            results[stack] = _failed(error)
        print(f"{stack}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    try:
        Path(out).write_text(json.dumps(results))
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return os.EX_IOERR
    return 0


def _lack(error: Exception) -> str:
    """What the system does not give any more; empty for a failure of the program itself.

    Compiled modules state a lack of memory in their own ways, when they are loaded and later.
    """
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return str(error)
    by_module = isinstance(error, ImportError) and "failed to map segment" in str(error)
    by_call = isinstance(error, SystemError) and "without exception set" in str(error)
    return "out of memory" if isinstance(error, MemoryError) or by_module or by_call else ""


def _failed(error: Exception) -> dict[str, Any]:
    # Of a file that is missing, its repr has no name.
    reason = str(error) if isinstance(error, OSError) else repr(error)
    return {"error": f"the program failed: {reason}", "trace": traceback.format_exc()}
