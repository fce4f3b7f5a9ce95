"""Runs a checkout's program for some stacks without engine or cluster, and records what it declares.

A program of its own, run as `python mocked_program.py OUT NAME=FILE...` in the checkout's folder: it imports nothing
of this package, so that it runs the program of any revision. FILE is the stack file's content in JSON. The bundle's
CRDs and pod network are left out, because they are pinned by digest in versions.yaml and not always on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import importlib
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf.struct_pb2 import Struct, Value
from pulumi.output import _OutputData
from pulumi.runtime import proto, rpc
from pulumi.runtime import resource as registering
from pulumi.runtime.mocks import MockMonitor, Mocks, set_mocks
from pulumi.runtime.settings import SETTINGS, set_root_resource
from pulumi.runtime.stack import run_in_stack

PROJECT = "inference-platform"
KEY = f"{PROJECT}:site"
SECRET = "[secret]"  # noqa: S105
LATER = "[known after up]"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105
_sdk_transfer_properties, _sdk_resolve_outputs = rpc.transfer_properties, rpc.resolve_outputs
_sdk_create_urn = registering.create_urn


class _NoMocks(Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        # The calls of the program ask machines what `up` would do with them; an older revision asks one at a time.
        told = {"change": "none", "says": "not asked"}
        if " plan-all " in args.args["command"]:
            return {"stdout": json.dumps([told for _ in json.loads(args.args["stdin"])])}, []
        return {"stdout": json.dumps(told)}, []


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

    def Invoke(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        args = pulumi.runtime.MockCallArgs(request.tok, rpc.deserialize_properties(request.args), request.provider)
        response = proto.provider_pb2.InvokeResponse()
        # A word of Python, which no attribute can be called.
        getattr(response, "return").update(self.mocks.call(args)[0])
        return response

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        if request.custom:
            self.declared.append(
                {
                    "type": request.type,
                    "name": request.name,
                    "inputs": plain(request.object),
                    "protect": bool(request.protect),
                    "retain": bool(request.retainOnDelete),
                }
            )
        urn = self.make_urn(request.parent, request.type, request.name)
        outputs = Struct()
        outputs.CopyFrom(request.object)
        if request.type == "command:local:Command":
            # What a command prints is a key or a cluster's secrets: made by `up` alone, and secret all the way.
            outputs.update({"stdout": {_SIGNATURE: _SECRET_SIGNATURE, "value": rpc.UNKNOWN}})
        # No id: to the program it is known after `up` alone, as in a preview.
        return proto.resource_pb2.RegisterResourceResponse(urn=urn, object=outputs)


class _Registered:
    """What the mocks answered for one resource; made into Python's values when one of them is read."""

    def __init__(self) -> None:
        self._outputs: asyncio.Future[Callable[[], dict[str, _OutputData[Any]]]] = asyncio.Future()
        self._values: dict[str, _OutputData[Any]] | None = None

    def came(self, outputs: Callable[[], dict[str, _OutputData[Any]]]) -> None:
        self._outputs.set_result(outputs)

    def failed(self, *values: Any) -> None:
        """As the SDK resolves each output of a resource that it could not register: the error comes last."""
        if not self._outputs.done():
            self._outputs.set_exception(values[-1])

    async def value(self, name: str) -> _OutputData[Any]:
        outputs = await self._outputs
        if self._values is None:
            self._values = outputs()
        return self._values[name]


class _Later(pulumi.Output[Any]):
    """One output of a resource. The SDK's own begins a task for each, and of a hundred a program reads a few."""

    def __init__(self, answer: _Registered, name: str) -> None:
        self._answer, self._name = answer, name
        self._read: asyncio.Future[_OutputData[Any]] | None = None

    @property
    def _data(self) -> asyncio.Future[_OutputData[Any]]:  # type: ignore[override]
        if self._read is None:
            self._read = asyncio.ensure_future(self._answer.value(self._name))
        return self._read


class _Resolvers(dict[str, Callable[..., None]]):
    """By output, as the SDK keeps them from a resource's constructor to its answer."""

    def __init__(self, answer: _Registered, names: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(names, answer.failed))
        self.answer = answer


def _transfer_properties(res: pulumi.Resource, props: Iterable[str], custom: bool) -> _Resolvers:  # noqa: FBT001 - the SDK's form
    """The SDK's, with outputs that begin nothing."""
    answer = _Registered()
    names = [name for name in props if name != "urn" and not (name == "id" and custom)]
    for name in names:
        res.__dict__[name] = _Later(answer, name)
    return _Resolvers(answer, names)


def _resolve_outputs(
    res: pulumi.Resource, serialized: Struct, outputs: Struct, deps: Any, resolvers: _Resolvers, *more: Any
) -> None:
    """The SDK's own, once an output of the resource is read."""

    def values() -> dict[str, _OutputData[Any]]:
        resolved: dict[str, _OutputData[Any]] = {}

        def take(name: str, value: Any, known: bool, secret: bool, above: Any, _: Any) -> None:  # noqa: FBT001 - the SDK's form
            resolved[name] = _OutputData(resources={res, *(above or ())}, value=value, is_known=known, is_secret=secret)

        taking: dict[str, Any] = {name: functools.partial(take, name) for name in resolvers}
        _sdk_resolve_outputs(res, serialized, outputs, deps, taking, *more)
        return resolved

    resolvers.answer.came(values)


class _NoUrn:
    """In the place of a URN that the SDK computes for a program without a monitor."""

    async def future(self) -> None:
        """Nothing: the monitor gives the URN."""


def _create_urn(name: Any, type_: Any, parent: Any = None, *more: Any) -> Any:
    """The SDK's own, of which a registration has no use; aliases do."""
    if isinstance(name, str) and not isinstance(parent, pulumi.Resource | pulumi.Output) and not more:
        return _NoUrn()
    return _sdk_create_urn(name, type_, parent, *more)


@contextlib.contextmanager
def _only_what_is_read() -> Iterator[None]:
    """The SDK without what a program under mocks has no use for, which is a third of its time."""
    rpc.transfer_properties, rpc.resolve_outputs = _transfer_properties, _resolve_outputs  # type: ignore[assignment]
    registering.create_urn = _create_urn  # type: ignore[assignment]
    try:
        yield
    finally:
        rpc.transfer_properties, rpc.resolve_outputs = _sdk_transfer_properties, _sdk_resolve_outputs
        registering.create_urn = _sdk_create_urn


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
    """What the program in the current folder declares for the stack of that file.

    The program's own rules stay out unless they are asked for: a site that breaks one can be looked at all the same.
    The SDK keeps what it knows in context variables, so that an empty context has nothing of a site before this one.
    """
    with _only_what_is_read():
        return contextvars.Context().run(_declared, stack, file, enforce_rules=enforce_rules)


def _declared(stack: str, file: Path, *, enforce_rules: bool) -> list[dict[str, Any]]:
    if not enforce_rules:
        _leave_rules_out()
    _leave_reports_out()
    document = json.loads(file.read_text())
    config = document.get("config") if isinstance(document, dict) else None
    config = config if isinstance(config, dict) else {}
    _leave_files_out(config.get(KEY))
    recorder = Recorder()
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
    loop.run_until_complete(run_in_stack(_run))
    loop.close()
    return sorted(recorder.declared, key=lambda resource: (resource["type"], resource["name"]))


def _leave_files_out(site: Any) -> None:
    """What a site reads from disk is left to others, where it has the form of a site; else the program reports it."""
    if not isinstance(site, dict):
        return
    crds, cluster = site.get("crds", {}), site.get("cluster")
    if isinstance(crds, dict):
        site["crds"] = {**crds, "owner": "external"}
    # Where Cilium's kinds are used too, the pod network stays Cilium, with nothing in the manifest's place.
    if isinstance(cluster, dict) and isinstance(cluster.get("machines"), dict) and not site.get("addresses"):
        cluster["machines"]["cni"] = "external"
    with contextlib.suppress(ImportError):
        access: Any = importlib.import_module("stacks.program.cluster_access")
        access._cilium = lambda *_: None


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
            results[stack] = {
                "resources": declared(stack, Path(file), enforce_rules=enforce_rules),
                "seconds": time.monotonic() - began,
            }
        except pulumi.RunError as error:
            results[stack] = {"error": str(error)}
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "can't start new thread" not in str(error):
                results[stack] = _failed(error)
                continue
            print(str(error) or "out of memory", file=sys.stderr)
            return os.EX_OSERR
        except Exception as error:  # noqa: BLE001 - the program of another revision may fail in any way
            results[stack] = _failed(error)
        print(f"{stack}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    try:
        Path(out).write_text(json.dumps(results))
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return os.EX_IOERR
    return 0


def _failed(error: Exception) -> dict[str, Any]:
    # Of a file that is missing, its repr has no name.
    reason = str(error) if isinstance(error, OSError) else repr(error)
    return {"error": f"the program failed: {reason}", "trace": traceback.format_exc()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
