"""The provider protocol's requests, translated to the resource operations and back."""

# ruff: noqa: N802, ARG002 - method names and signatures are the protocol's

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import urllib3
from google.protobuf import empty_pb2
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from lab.plugins.kubernetes import STAND_IN, VERSION, config, release_inputs, releases, resources
from lab.plugins.kubernetes.checking import CheckContext, Naming, check
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.diffing import ChangeKind, PropertyChange
from lab.plugins.kubernetes.errors import ApiError, ProviderError
from lab.plugins.kubernetes.objects import inputs_to_properties, is_crd, secrets_of
from lab.plugins.kubernetes.properties import Tree, decode, encode, hide, plain
from lab.plugins.kubernetes.resources import InitializationError, Stored
from lab.plugins.kubernetes.session import Log, Operation, ProviderSession

_Diff = provider_pb2.PropertyDiff
_KINDS = {
    (ChangeKind.ADD, False): _Diff.ADD,
    (ChangeKind.ADD, True): _Diff.ADD_REPLACE,
    (ChangeKind.DELETE, False): _Diff.DELETE,
    (ChangeKind.DELETE, True): _Diff.DELETE_REPLACE,
    (ChangeKind.UPDATE, False): _Diff.UPDATE,
    (ChangeKind.UPDATE, True): _Diff.UPDATE_REPLACE,
}


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider process: the engine configures it once and then asks from many threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._cancelled = threading.Event()
        self._session: ProviderSession | None = None

    @property
    def _configured(self) -> ProviderSession:
        if self._session is None:
            raise ProviderError("the provider was asked for a resource before it was configured")
        return self._session

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, supports_autonaming_configuration=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetSchemaResponse(
            schema=f'{{"name": "kubernetes", "version": "{VERSION}", "description": "{STAND_IN}"}}'
        )

    def Attach(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:
        self._cancelled.set()
        return empty_pb2.Empty()

    def Parameterize(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{STAND_IN}: CRD parameterization is not covered")
        raise AssertionError("abort raises")

    def GetMapping(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetMappingResponse()

    def GetMappings(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetMappingsResponse()

    def List(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{STAND_IN}: List is not covered")
        raise AssertionError("abort raises")

    def Call(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{STAND_IN}: methods are not covered")
        raise AssertionError("abort raises")

    def Invoke(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{STAND_IN}: functions are not covered, so not {request.tok}")
        raise AssertionError("abort raises")

    def Construct(self, request: Any, context: Any) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{STAND_IN}: components are not covered, so no {request.type}")
        raise AssertionError("abort raises")

    def CheckConfig(self, request: Any, context: Any) -> Any:
        failures = [
            provider_pb2.CheckFailure(property=key, reason=f"the lab stand-in does not cover {key}: leave it out")
            for key in config.not_covered(plain(decode(request.news)))
        ]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        def compare() -> Any:
            try:
                change = config.compare(plain(decode(request.olds)), plain(decode(request.news)))
            except ValueError as error:
                raise ProviderError(str(error)) from error
            some = provider_pb2.DiffResponse.DIFF_SOME if change.changed else provider_pb2.DiffResponse.DIFF_NONE
            return provider_pb2.DiffResponse(changes=some, diffs=change.changed, replaces=change.replaced)

        return self._answer(context, compare)

    def Configure(self, request: Any, context: Any) -> Any:
        def configure() -> Any:
            try:
                settings = config.ProviderConfig.from_variables(request.variables, os.environ)
            except ValueError as error:
                raise ProviderError(str(error)) from error
            self._session = _connect(ProviderSession(settings, self._log, self._cancelled))
            return provider_pb2.ConfigureResponse(
                acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
            )

        return self._answer(context, configure)

    def Check(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            session = self._configured
            if session.reachable is None and session.config.skip_update_unreachable:
                self._log.warning(request.urn, "left as recorded: unreachable cluster, and skipUpdateUnreachable is on")
                return provider_pb2.CheckResponse(inputs=request.olds)
            options = request.autonaming
            naming = Naming(
                seed=request.randomSeed,
                proposed=options.proposed_name if request.HasField("autonaming") else "",
                disabled=request.HasField("autonaming") and options.mode == options.Mode.DISABLE,
            )
            if releases.is_release(request.urn):
                release = release_inputs.check(session, request.urn, decode(request.olds), decode(request.news), naming)
                failures = (
                    [provider_pb2.CheckFailure(property="chart", reason=release.problem)] if release.problem else []
                )
                return provider_pb2.CheckResponse(inputs=encode(release.inputs), failures=failures)
            known = CheckContext(
                server_side_apply=session.config.server_side_apply,
                default_namespace=session.default_namespace,
                managed_by=os.environ.get("PULUMI_KUBERNETES_MANAGED_BY_LABEL", "pulumi"),
                scope=session.scope,
            )
            news = decode(request.news)
            checked = check(request.urn, decode(request.olds), news, naming, known)
            if is_crd(checked):
                session.declare(checked)
            return provider_pb2.CheckResponse(inputs=encode(inputs_to_properties(checked, news)))

        return self._answer(context, answer, request.news)

    def Diff(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            olds, news, ignored = decode(request.olds), decode(request.news), list(request.ignoreChanges)
            if releases.is_release(request.urn):
                difference = releases.diff(olds, news, ignored)
            else:
                difference = resources.diff(Operation(self._configured, request.urn), olds, news, ignored)
            changes = provider_pb2.DiffResponse.DIFF_SOME if difference.changed else provider_pb2.DiffResponse.DIFF_NONE
            return provider_pb2.DiffResponse(
                changes=changes,
                replaces=difference.replaces,
                deleteBeforeReplace=difference.delete_before_replace,
                detailedDiff={path: _property_diff(change) for path, change in difference.changes.items()},
                hasDetailedDiff=True,
            )

        return self._answer(context, answer)

    def Create(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            properties = decode(request.properties)
            operation = self._operation(request, properties, preview=request.preview)
            if releases.is_release(request.urn):
                stored: Stored | None = releases.create(operation, properties)
            else:
                stored = resources.create(operation, properties)
            if stored is None:
                return provider_pb2.CreateResponse(id="", properties=request.properties)
            return provider_pb2.CreateResponse(id=stored.id, properties=encode(stored.state))

        return self._answer(context, answer, request.properties)

    def Update(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            news = decode(request.news)
            operation = self._operation(request, news, preview=request.preview)
            if releases.is_release(request.urn):
                stored: Stored | None = releases.update(operation, request.id, news)
            else:
                olds, ignored = decode(request.olds), list(request.ignoreChanges)
                stored = resources.update(operation, request.id, olds, news, ignored)
            if stored is None:
                return provider_pb2.UpdateResponse(properties=request.news)
            return provider_pb2.UpdateResponse(properties=encode(stored.state))

        return self._answer(context, answer, request.news)

    def Read(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            state, inputs = decode(request.properties), decode(request.inputs)
            operation = Operation(self._configured, request.urn, hidden=secrets_of(state))
            read = releases.read if releases.is_release(request.urn) else resources.read
            stored = read(operation, request.id, state, inputs)
            if stored is None:
                return provider_pb2.ReadResponse(id="")
            return provider_pb2.ReadResponse(
                id=stored.id, properties=encode(stored.state), inputs=encode(stored.inputs or {})
            )

        return self._answer(context, answer, request.properties)

    def Delete(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            state = decode(request.properties)
            delete = releases.delete if releases.is_release(request.urn) else resources.delete
            delete(self._operation(request, state), request.id, state)
            return empty_pb2.Empty()

        return self._answer(context, answer, request.properties)

    def _operation(self, request: Any, properties: Tree, *, preview: bool = False) -> Operation:
        return Operation(self._configured, request.urn, preview, request.timeout, secrets_of(properties))

    def _answer(self, context: Any, work: Callable[[], Any], given: Any = None) -> Any:
        """Run the work; every failure becomes one message for the user, a partial one carries the resource's state.

        Secret texts of the `given` properties are blotted out of the message.
        """

        def shown(text: str) -> str:
            return text if given is None else hide(text, secrets_of(decode(given)))

        try:
            return work()
        except InitializationError as error:
            reasons = [shown(reason) for reason in error.reasons]
            context.set_trailing_metadata((("grpc-status-details-bin", _partial_status(error.stored, reasons)),))
            context.abort(grpc.StatusCode.UNKNOWN, reasons[0])
        except (ProviderError, ApiError, ValueError) as error:
            context.abort(grpc.StatusCode.UNKNOWN, shown(str(error)))
        raise AssertionError("abort raises")


def _connect(session: ProviderSession) -> ProviderSession:
    """Reach the session's cluster; one that cannot be reached fails each operation, not the whole provider."""
    try:
        kubeconfig = config.load_kubeconfig(session.config)
    except ValueError as error:
        session.unreachable_reason = f"{error}; the provider's kubeconfig or KUBECONFIG must name a usable one"
        session.default_namespace = session.config.namespace or "default"
        return session
    session.default_namespace = config.default_namespace(session.config, kubeconfig)
    try:
        cluster = Cluster(kubeconfig, session.cancelled, session.config.request_timeout_s)
        cluster.version()
    except (ConfigException, ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        session.unreachable_reason = f"the first request to its API server failed: {reason}"
        return session
    session.reachable = cluster
    return session


def _property_diff(change: PropertyChange) -> Any:
    return _Diff(kind=_KINDS[change.change, change.replaces], inputDiff=change.change is ChangeKind.DELETE)


def _partial_status(stored: Stored, reasons: list[str]) -> bytes:
    detail = provider_pb2.ErrorResourceInitFailed(
        id=stored.id,
        properties=encode(stored.state),
        reasons=reasons,
        inputs=encode(stored.inputs) if stored.inputs is not None else None,
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reasons[0])
    status.details.add().Pack(detail)
    data: bytes = status.SerializeToString()
    return data
