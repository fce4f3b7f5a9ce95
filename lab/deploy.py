"""`lab deploy`: `pulumi up` on the lab, then one question to a model through the gateway, answered token by token."""

from __future__ import annotations

import json
import shlex
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import httpx

from lab import session
from lab.errors import LabError
from lab.paths import Lab

QUESTION = "Where does this answer come from?"
_TOKENS = 64
# Routes reach Envoy some seconds after the objects that pulumi waits for.
_FIRST_ANSWER_S = 120.0
_PAUSE_S = 1.0
# Keys reach Envoy with the first route; it refuses every key until then.
_NOT_YET = frozenset({401, 404, 500, 502, 503, 504})
_BY_HAND = 'eval "$(python -m lab env)" && pulumi up'


@dataclass(frozen=True, kw_only=True)
class StackOutputs:
    """What a stack gives out: the OpenAI base address, the models' names, and a key for each client."""

    endpoint: str
    models: tuple[str, ...]
    keys: dict[str, str]
    ca: Path | None = None
    """CA that the endpoint's certificate must be of; None where the endpoint is plain HTTP."""

    @cached_property
    def trust(self) -> ssl.SSLContext | bool:
        """How a client of the endpoint checks its certificate: this CA is trusted, and no other."""
        return ssl.create_default_context(cafile=str(self.ca)) if self.ca else True

    @property
    def client(self) -> str:
        """The client whose key is shown: the first by name."""
        return min(self.keys)


@click.command()
@click.option("--ask-only", is_flag=True, help="do not run pulumi up; ask what is there")
@click.option("--model", metavar="NAME", help="model to ask (default: the first of the stack's)")
@click.option("--question", metavar="TEXT", default=QUESTION, show_default=True, help="what to ask")
@click.pass_obj
def command(lab: Lab, *, ask_only: bool, model: str | None, question: str) -> int:
    if not ask_only:
        deploy(lab)
    ask(front(lab), model=model, question=question)
    return 0


def deploy(lab: Lab) -> None:
    """`pulumi up`, its progress on the terminal."""
    status = session.stream_pulumi(lab, "up", "--yes", "--stack", session.STACK)
    if status != 0:
        raise LabError(f"`pulumi up` ended with {status}; its diagnostics are above", fix=f"fix that, then {_BY_HAND}")


def front(lab: Lab) -> StackOutputs:
    """The stack's outputs, keys in plain text. Raises LabError when `up` has not run for the stack."""
    shown = session.run_pulumi(lab, "stack", "output", "--json", "--show-secrets", "--stack", session.STACK)
    outputs = parse_outputs(json.loads(shown.stdout))
    if not outputs.endpoint.startswith("https:"):
        return outputs
    if not lab.gateway_ca.exists():
        raise LabError(f"there is no {lab.gateway_ca}, which {outputs.endpoint} is checked by", fix="python -m lab up")
    return replace(outputs, ca=lab.gateway_ca)


def parse_outputs(outputs: dict[str, Any]) -> StackOutputs:
    """Outputs of the stack -> StackOutputs; LabError names those that are missing or empty."""
    missing = [name for name in ("endpoint", "models", "keys") if not outputs.get(name)]
    if missing:
        raise LabError(f"the stack {session.STACK} has no output {', '.join(missing)}", fix=_BY_HAND)
    return StackOutputs(endpoint=outputs["endpoint"], models=tuple(outputs["models"]), keys=dict(outputs["keys"]))


def ask(
    platform: StackOutputs,
    *,
    model: str | None = None,
    question: str = QUESTION,
    transport: httpx.BaseTransport | None = None,
    patience_s: float = _FIRST_ANSWER_S,
    pause_s: float = _PAUSE_S,
) -> str:
    """Print endpoint, key and a curl line, then a streamed answer as it comes; the whole answer.

    Raises LabError when the model is unknown, or no answer comes within `patience_s`, asked for every
    `pause_s`.
    """
    chosen = model or platform.models[0]
    if chosen not in platform.models:
        raise LabError(f"no model {chosen!r}; this stack serves {', '.join(platform.models)}", fix="name one of these")
    body = {
        "model": chosen,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": _TOKENS,
        "stream": True,
    }
    url = f"{platform.endpoint}/chat/completions"
    key = platform.keys[platform.client]
    say = sys.stdout.write
    say(f"\nendpoint  {platform.endpoint}\nmodels    {', '.join(platform.models)}\n")
    say(f"key       {key}  (client {platform.client})\n\n{curl_line(url, key, body, platform.ca)}\n\n{chosen}> ")
    answer = ""
    # Straight to the lab: a proxy that the machine uses for the internet cannot know its addresses.
    patience, trust = httpx.Timeout(60, connect=5), platform.trust
    with httpx.Client(transport=transport, verify=trust, trust_env=False, timeout=patience) as client:
        for token in _tokens(client, url, key, body, deadline=time.monotonic() + patience_s, pause_s=pause_s):
            answer += token
            say(token)
            sys.stdout.flush()
    say("\n")
    if not answer:
        raise LabError(f"{chosen} ended its stream without a token", fix="python -m lab logs")
    return answer


def curl_line(url: str, key: str, body: dict[str, Any], ca: Path | None = None) -> str:
    """The same request for a shell."""
    trust = f"--cacert {shlex.quote(str(ca))} " if ca else ""
    headers = (f"Authorization: Bearer {key}", "Content-Type: application/json")
    lines = [f"curl -N {trust}{shlex.quote(url)}", *(f"  -H {shlex.quote(header)}" for header in headers)]
    return " \\\n".join([*lines, f"  -d {shlex.quote(json.dumps(body))}"])


def _tokens(
    client: httpx.Client, url: str, key: str, body: dict[str, Any], *, deadline: float, pause_s: float
) -> Iterator[str]:
    headers = {"Authorization": f"Bearer {key}"}
    while True:
        try:
            with client.stream("POST", url, json=body, headers=headers) as response:
                if response.status_code == httpx.codes.OK:
                    yield from _stream(response)
                    return
                refusal = f"{response.status_code}: {response.read().decode(errors='replace').strip()[:500]}"
                if response.status_code not in _NOT_YET:
                    raise LabError(f"the gateway refused the request with {refusal}", fix=f"{_BY_HAND}; lab logs")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # Also of an untrusted certificate, and while packets are dropped: the gateway may not be there yet.
            refusal = f"no connection ({error})"
        except httpx.TransportError as error:
            raise LabError(f"the stream broke: {error or type(error).__name__}", fix="python -m lab logs") from error
        if time.monotonic() > deadline:
            raise LabError(
                f"no answer from {url} in time; the last one was {refusal}",
                fix="`python -m lab status`, then `kubectl get gateways,aigatewayroutes,inferencepools -A`: who waits?",
            )
        time.sleep(pause_s)


def _stream(response: httpx.Response) -> Iterator[str]:
    for line in _lines(response):
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise LabError(f"the model ended with an error: {event['error']}", fix="python -m lab logs")
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            # What a model thinks comes first, under a name of its own (vLLM 0.32).
            yield delta.get("content") or delta.get("reasoning") or ""


def _lines(response: httpx.Response) -> Iterator[str]:
    """Lines of events. httpx's own end at each of Unicode's separators, which an answer may have."""
    rest = b""
    for part in response.iter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode() for line in whole)
    if rest:
        yield rest.decode()
