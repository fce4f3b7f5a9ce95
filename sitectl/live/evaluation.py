"""A model's answers held against what is expected of them, on both of its revisions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Annotated, Any

import httpx
from pydantic import AfterValidator, Field, model_validator

from floor.problems import WrongValueError
from sitectl.shell.errors import SitectlError
from stacks.facts.records import Record

# Of one answer, with its prompt and the wait for a replica that has others to serve.
_ANSWER_S = 600.0


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise WrongValueError(f"is no regular expression: {error}", fix="correct it") from None
    return text


class Expectation(Record):
    """What holds of a good answer; all that is given has to."""

    contains: tuple[str, ...] = ()
    """Texts that are in it, in capital or small letters."""
    matches: Annotated[str, AfterValidator(_pattern)] | None = None
    """A regular expression that matches a part of it."""
    json_has: Any = None
    """What its JSON has: each of these keys with this value; a list as it is."""
    tool: str | None = None
    """The function that it calls."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Of that call: each of these with this value."""
    reasons: bool = False
    """Whether it has reasoning apart from its answer."""

    @model_validator(mode="after")
    def _expects_something(self) -> Expectation:
        if not (self.contains or self.matches or self.json_has is not None or self.tool or self.reasons):
            raise WrongValueError("expects nothing", fix="give contains, matches, json_has, tool or reasons")
        return self


class EvaluationCase(Record):
    """A request, and what is expected of its answer."""

    name: str
    messages: tuple[Mapping[str, Any], ...] = Field(min_length=1)
    """As OpenAI's chat API takes them."""
    body: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of the request, such as tools or response_format."""
    expect: Expectation


class EvaluationSet(Record):
    """Cases of one model."""

    cases: tuple[EvaluationCase, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_different(self) -> EvaluationSet:
        if twice := sorted(name for name, times in Counter(case.name for case in self.cases).items() if times > 1):
            raise WrongValueError(f"has two cases called {', '.join(twice)}", fix="give each a name of its own")
        return self


@dataclass(frozen=True, kw_only=True)
class AskedRevision:
    """One way to ask the model: with this key, the gateway sends each request to this revision."""

    name: str
    client: str
    """TENANT.PURPOSE."""
    key: str = field(repr=False)


def missing(expect: Expectation, message: Mapping[str, Any]) -> str:
    """What an answer lacks, as OpenAI's API gives it; empty for a good one."""
    text = str(message.get("content") or "")
    for wanted in expect.contains:
        if wanted.casefold() not in text.casefold():
            return f"has no {wanted!r}"
    if expect.matches is not None and not re.search(expect.matches, text):
        return f"does not match {expect.matches!r}"
    if expect.json_has is not None:
        try:
            value = json.loads(text)
        except ValueError:
            return "is no JSON"
        if not _has(value, expect.json_has):
            return f"has not {json.dumps(expect.json_has)}"
    if expect.tool is not None and (lack := _uncalled(expect, message)):
        return lack
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return "has no reasoning apart from it" if expect.reasons and not reasoning else ""


def _uncalled(expect: Expectation, message: Mapping[str, Any]) -> str:
    called = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    for function in called:
        if function.get("name") == expect.tool:
            try:
                arguments = json.loads(function.get("arguments") or "{}")
            except ValueError:
                return f"calls {expect.tool} with no JSON"
            return (
                "" if _has(arguments, dict(expect.arguments)) else f"calls {expect.tool} with {json.dumps(arguments)}"
            )
    return f"calls {', '.join(str(function.get('name')) for function in called) or 'nothing'}"


def _has(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(key in value and _has(value[key], wanted[key]) for key in wanted)
    return bool(value == wanted)


def answers(
    endpoint: str, model: str, revision: AskedRevision, cases: Sequence[EvaluationCase], trust: SSLContext
) -> dict[str, str]:
    """Case -> what the answer of this revision lacks; empty for a good one. Raises SitectlError where none comes.

    endpoint: with the API's version, as OpenAI's clients take it. trust: of its certificate.
    """
    headers = {"authorization": f"Bearer {revision.key}"}
    with httpx.Client(base_url=endpoint, headers=headers, timeout=_ANSWER_S, verify=trust) as client:
        return {case.name: missing(case.expect, _answer(client, model, revision, case)) for case in cases}


def _answer(client: httpx.Client, model: str, revision: AskedRevision, case: EvaluationCase) -> Mapping[str, Any]:
    # Without a seed two answers of one revision differ, too.
    body = {"temperature": 0, "seed": 0, **case.body, "model": model, "messages": [*case.messages], "stream": False}
    where = f"{case.name} on {revision.name}"
    try:
        answer = client.post("chat/completions", json=body)
    except httpx.HTTPError as error:
        raise SitectlError(
            f"{where}: no answer: {type(error).__name__}", fix=f"check that {client.base_url} can be reached"
        ) from None
    if not answer.is_success:
        raise SitectlError(
            f"{where}: {answer.status_code} {answer.text[:200]}", fix=f"ask as {revision.client} yourself, and see why"
        )
    message: Mapping[str, Any] = answer.json()["choices"][0]["message"]
    return message
