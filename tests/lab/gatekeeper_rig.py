"""The front door in the pinned Envoy, a real gatekeeper and a real store, in front of an engine that echoes."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import httpx

from components.gateway.connections import Connection, cluster
from components.gateway.envoy_names import CHECKED, DECISIONS, MODEL_NAMES_FILTER
from components.gateway.front_door import first_filters
from components.gateway.gateway_errors import openai_errors
from components.gateway.request_log import ASKED_MODEL, PROMPT_ID, marked
from components.specs.access import TenantSpec
from components.specs.callers import Canary, Dedicated, FillingPool, Overflow, SharedCache
from components.specs.tiers import TierSpec
from components.tenants.callers import digest_of, keys_file, tenants_file
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER, REVISION_HEADER, TENANT_HEADER
from lab.free_ports import free_port
from lab.paths import Lab
from tests.lab.lone_envoy import envoy_with, listening
from tests.lab.waiting import eventually
from tests.unit.services.ledger_rig import OPERATOR

MODEL = "chat"
CONTEXT = 32_000
"""Tokens of a prompt with its answer that the model takes."""
# With what the streams' count takes for the tokens of a prompt.
_PROMPT_HEADER = "prompt"
# With what logs have as the prompt's name.
_NAMED_HEADER = "named"
# With what logs have as the model that was asked for.
_ASKED_HEADER = "asked"
# With what the ledger's log has as the client's network.
_NETWORK_HEADER = "network"
_TYPE = "type.googleapis.com/envoy."


_AI_GATEWAY = f"""
function envoy_on_request(request)
  local body = request:body()
  local model = body and string.match(body:getBytes(0, body:length()), '"model":"([^"]*)"')
  if model then
    request:headers():replace("{MODEL_HEADER}", model)
  end
end
"""


class EchoingEngine(ThreadingHTTPServer):
    """Simulated: answers with what it got. A request that wants a stream is held until `go_on`, its head sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.go_on = threading.Event()


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EchoingEngine

    def do_POST(self) -> None:
        body = b"".join(iter(self._chunk, b""))
        tier, prompt = self.headers.get(OBJECTIVE_HEADER, ""), self.headers.get(_PROMPT_HEADER, "")
        revision, named = self.headers.get(REVISION_HEADER, ""), self.headers.get(_NAMED_HEADER, "")
        got = {"body": json.loads(body), "tier": tier, "path": self.path, "prompt": prompt, "revision": revision}
        asked = self.headers.get(_ASKED_HEADER, "")
        got |= {"named": named, "asked": asked, "network": self.headers.get(_NETWORK_HEADER, "")}
        answer = json.dumps(got).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if json.loads(body).get("stream"):
            self.wfile.write(answer[:1])
            self.server.go_on.wait()
            answer = answer[1:]
        self.wfile.write(answer)

    def _chunk(self) -> bytes:
        """Envoy gives no length of a body that another one has written."""
        content = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return content

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@dataclass
class Rig:
    """Everything between a client and the engine."""

    lab: Lab
    folder: Path
    tenants: Mapping[str, TenantSpec]
    tiers: Mapping[str, TierSpec] = field(default_factory=dict)
    refuse_uncounted: bool = False
    canary: Canary | None = None
    """Of the one model."""
    dedicated: Mapping[str, Mapping[str, Dedicated]] = field(default_factory=dict)
    """Tenant -> model -> replicas that it has for itself."""
    overflows: Mapping[str, Overflow] = field(default_factory=dict)
    pools: Mapping[str, FillingPool] = field(default_factory=dict)
    caches: Mapping[str, SharedCache] = field(default_factory=dict)
    ledger: str = ""
    """Its URL; empty for none."""
    more: Sequence[str] = ()
    """Further options of the gatekeeper."""
    port: int = field(default_factory=free_port)
    state: int = field(default_factory=free_port)
    counters: int = field(default_factory=free_port)
    client: httpx.Client = field(init=False)
    engine: EchoingEngine = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """What models are called: each by its own name."""
        return {name: name for name in (MODEL, *(of.to for of in self.overflows.values()))}

    def write_files(self) -> list[str]:
        """Those that the platform's program gives a gatekeeper; their names."""
        limited = {name: spec.limits for name, spec in self.tenants.items() if spec.limits}
        tenants = tenants_file(
            self.tenants,
            tiers=self.tiers,
            bounds={name: limits.bounds | limits.shares for name, limits in limited.items()},
            budgets={name: limits.budgets for name, limits in limited.items()},
            names=self.names,
            contexts={MODEL: CONTEXT},
            canaries={MODEL: self.canary} if self.canary else {},
            dedicated=self.dedicated,
            overflows=self.overflows,
            pools=self.pools,
            caches=self.caches,
        )
        files = {
            "tenants": tenants,
            "keys": keys_file({f"{tenant}.key": digest_of(key_of(tenant)) for tenant in self.tenants}),
            "salt": "salt-of-the-site",
            "ledger-token": OPERATOR,
        }
        for name, content in files.items():
            (self.folder / name).write_text(content)
        return [*files]

    def start_gatekeeper(self) -> None:
        files = [f"--{name}-file={self.folder / name}" for name in self.write_files()]
        command = [
            str(self.lab.bin / "gatekeeper"),
            *files,
            f"--listen=127.0.0.1:{self.port}",
            f"--listen-state=127.0.0.1:{self.state}",
            f"--client-header={CLIENT_HEADER}",
            f"--tenant-header={TENANT_HEADER}",
            f"--decided={DECISIONS}",
            f"--checked={CHECKED}",
            f"--counters=127.0.0.1:{self.counters}",
            f"--refuse-uncounted={str(self.refuse_uncounted).lower()}",
            f"--ledger={self.ledger}",
            f"--named={':'.join(PROMPT_ID)}",
            *self.more,
        ]
        self._start("gatekeeper", command)
        eventually(lambda: self.state_of("/readyz").status_code == 200)

    def state_of(self, path: str) -> httpx.Response:
        """What the gatekeeper answers those who watch it."""
        return httpx.get(f"http://127.0.0.1:{self.state}{path}", trust_env=False, timeout=60)

    def start_counters(self) -> None:
        # Redis's server takes its name from the program.
        server = self.folder / "redis-server"
        server.unlink(missing_ok=True)
        server.symlink_to((self.lab.bin / "redis-check-rdb").resolve())
        self._start("counters", [str(server), "--port", str(self.counters), "--save", "", "--dir", str(self.folder)])
        eventually(lambda: self._ping() == b"+PONG\r\n")

    def _ping(self) -> bytes:
        return self.of_store("PING")

    def of_store(self, command: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.counters), timeout=5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096)

    def under_way(self, tenant: str, what: str = "requests") -> int:
        """Requests of a tenant that the store counts."""
        return int(self.of_store(f"ZCARD {what}:{tenant}")[1:])

    @contextmanager
    def hung(self, name: str) -> Iterator[None]:
        """It answers no one, and does later what it was asked."""
        self.processes[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes[name].send_signal(signal.SIGCONT)

    def deciding(self) -> grpc.Channel:
        """By which an Envoy asks the gatekeeper."""
        certificate = ssl.get_server_certificate(("127.0.0.1", self.port)).encode()
        options = [("grpc.ssl_target_name_override", "gatekeeper")]
        return grpc.secure_channel(f"127.0.0.1:{self.port}", grpc.ssl_channel_credentials(certificate), options)

    @contextmanager
    def reading(self, tenant: str, bodies: int) -> Iterator[None]:
        """The gatekeeper waits for so many bodies of a tenant, each of which an Envoy has announced."""
        with self.deciding() as channel:
            process: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
                "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
            )
            # Nothing comes before the end.
            messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            calls = [process(iter(messages.get, b""), metadata=(("tenant", tenant),)) for _ in range(bodies)]
            try:
                yield
            finally:
                for call in calls:
                    call.cancel()
                    messages.put(b"")

    def _start(self, name: str, command: list[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def show_logs(self) -> None:
        """With a failed test; `log` is Envoy's."""
        for name in ("counters.log", "gatekeeper.log", "log"):
            with contextlib.suppress(FileNotFoundError):
                print(f"--- {name}", (self.folder / name).read_text()[-2000:], sep="\n")

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def ask(self, tenant: str, body: Any, path: str = "/v1/chat/completions") -> httpx.Response:
        """body: JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content, headers=self.headers(tenant))

    def headers(self, tenant: str) -> dict[str, str]:
        # The AI gateway, which is not here, reads the model from the body.
        headers = {"authorization": f"Bearer {key_of(tenant)}", MODEL_HEADER: MODEL}
        return {**headers, "content-type": "application/json"}


def key_of(tenant: str) -> str:
    return f"key-of-{tenant}"


@contextmanager
def rig(
    lab: Lab,
    folder: Path,
    tenants: Mapping[str, TenantSpec],
    tiers: Mapping[str, TierSpec] | None = None,
    *,
    refuse_uncounted: bool = False,
    ledger: str = "",
    canary: Canary | None = None,
    dedicated: Mapping[str, Mapping[str, Dedicated]] = MappingProxyType({}),
    overflows: Mapping[str, Overflow] = MappingProxyType({}),
    pools: Mapping[str, FillingPool] = MappingProxyType({}),
    caches: Mapping[str, SharedCache] = MappingProxyType({}),
    more: Sequence[str] = (),
) -> Iterator[Rig]:
    """All of its parts, running."""
    made = Rig(
        lab=lab,
        folder=folder,
        tenants=tenants,
        tiers=tiers or {},
        refuse_uncounted=refuse_uncounted,
        ledger=ledger,
        canary=canary,
        dedicated=dedicated,
        overflows=overflows,
        pools=pools,
        caches=caches,
        more=more,
    )
    made.engine = EchoingEngine()
    threading.Thread(target=made.engine.serve_forever, daemon=True).start()
    try:
        made.start_counters()
        made.start_gatekeeper()
        with envoy_with(_configuration(made), folder) as client:
            made.client = client
            # Its first connection to the gatekeeper takes long on a busy machine, and is none of what is tested.
            eventually(lambda: client.post("/v1/chat/completions", content=b"{}").status_code == 401)
            yield made
    except AssertionError:
        made.show_logs()
        raise
    finally:
        made.engine.go_on.set()
        made.engine.shutdown()
        for process in made.processes.values():
            process.kill()
            process.wait()


def _configuration(made: Rig) -> dict[str, Any]:
    connection = Connection(name="gatekeeper", authority=f"127.0.0.1:{made.port}", parallel=100, connect_s=1)
    address = {"socket_address": {"address": "127.0.0.1", "port_value": made.engine.server_port}}
    engine = {
        "name": "engine",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "engine",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    names = {
        "@type": f"{_TYPE}extensions.filters.http.lua.v3.LuaPerRoute",
        "filter_context": {"models": made.names},
    }
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "engine", "timeout": "0s"},
        "request_headers_to_add": [
            {"header": {"key": _PROMPT_HEADER, "value": f"%DYNAMIC_METADATA({DECISIONS}:prompt)%"}},
            {"header": {"key": _ASKED_HEADER, "value": marked(ASKED_MODEL)}},
            {"header": {"key": _NETWORK_HEADER, "value": marked((DECISIONS, "network"))}},
            {"header": {"key": _NAMED_HEADER, "value": marked(PROMPT_ID)}},
        ],
        "typed_per_filter_config": {MODEL_NAMES_FILTER: names},
    }
    *filters, names_of_models = first_filters(
        connection, revisions=bool(made.canary or made.dedicated), prompts=True, overflows=bool(made.overflows)
    )
    # Simulated: the AI gateway keeps the headers back until it has read the body (internal/extproc/mainlib of v1.0.0),
    # and takes the model out of it.
    waiting = {
        "name": "the-ai-gateway",
        "typed_config": {
            "@type": f"{_TYPE}extensions.filters.http.lua.v3.Lua",
            "default_source_code": {"inline_string": _AI_GATEWAY},
        },
    }
    policy = openai_errors("g", {}, listener="l", tls=False, decided=True, budgeted=True, paged=True, suspends=True)
    (errors,) = policy["spec"]["jsonPatches"]
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{_TYPE}extensions.filters.http.router.v3.Router"},
    }
    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [*filters, waiting, names_of_models, router],
            "local_reply_config": errors["operation"]["value"],
        },
        clusters=[cluster(connection), engine],
    )
