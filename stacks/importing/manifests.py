"""Containers that run vLLM, out of anyone's manifests: whatever holds a pod's `containers`, at any depth."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SHELLS = ("sh", "bash", "ash", "dash")
_SERVER, _CLI = "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"
_ENDS = {";", "&&", "||", "|", "&", ">", ">>", "2>&1"}
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
# $(NAME) of Kubernetes, and $NAME, ${NAME} and ${NAME:-DEFAULT} of a shell.
_VARIABLE = re.compile(r"\$\((\w+)\)|\$(\w+)|\$\{(\w+)(?::?-([^}]*))?\}")
_KUBERNETES = re.compile(r"\$\((\w+)\)")
# A line that goes on.
_JOINED = re.compile(r"\\\r?\n")
_LONGEST = 12
# Kubernetes' defaults of a probe.
_PERIOD_S, _FAILURES = 10, 3
_GRACE_S = 30
# Where a container's processes share memory.
_SHARED = "/dev/shm"  # noqa: S108 - a place in their manifests


@dataclass(frozen=True, kw_only=True)
class EngineContainer:
    """One container whose command is vLLM's server."""

    where: str
    """Kind, namespace and name of its object, and its own name."""
    words: tuple[str, ...]
    """What follows `vllm serve`, with the values of its environment put in."""
    unresolved: tuple[str, ...]
    """Variables in them whose value the manifest does not have."""
    image: str
    gpus: int | None
    """Whole GPUs that it asks for; None where it asks for none."""
    claims: str
    """What it asks for in another way, such as a slice of a GPU or a claim; nothing for most."""
    node_labels: Mapping[str, str]
    """Its pod's nodeSelector."""
    shares_memory: bool
    """Whether its ranks have more to exchange through than the 64 MiB of /dev/shm that a container has: a volume there
    in memory, or the host's IPC namespace."""
    started_s: int | None
    """Seconds until a probe ends the container if it does not answer; None where no probe does."""
    grace_s: int
    """Seconds from its end's announcement until it is killed."""


def engine_containers(documents: Iterable[Any]) -> list[EngineContainer]:
    """All in these documents, in their order; items of lists too."""
    return [container for document in documents for container in _of_document(document)]


def _of_document(document: Any) -> Iterator[EngineContainer]:
    if not isinstance(document, Mapping):
        return
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), Sequence):
        for item in document["items"]:
            yield from _of_document(item)
        return
    metadata = _mapping(document.get("metadata"))
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    for pod in _pods(document):
        for container in _containers(pod):
            if read := _command(container):
                yield _engine(f"{document.get('kind', 'object')} {name}", pod, container, read)


def _pods(document: Any) -> Iterator[Mapping[str, Any]]:
    """Whatever has containers, as a pod's spec does. An anchor may hold itself, or be held often."""
    seen, left = set[int](), [document]
    while left:
        value = left.pop()
        if isinstance(value, str) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            if _containers(value):
                yield value
            left += reversed([*value.values()])
        elif isinstance(value, Sequence):
            left += reversed(value)


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = pod.get("containers")
    return [part for part in listed if isinstance(part, Mapping)] if isinstance(listed, list) else []


def _engine(
    place: str, pod: Mapping[str, Any], container: Mapping[str, Any], read: tuple[list[str], list[str]]
) -> EngineContainer:
    words, unresolved = read
    asked = [_mapping(_mapping(container.get("resources")).get(key)) for key in ("limits", "requests")]
    gpus = [number for part in asked for name in _GPUS if (number := _number(part.get(name), 0))]
    slices = [name for part in asked for name in part if str(name).startswith("nvidia.com/mig-")]
    claimed = _list(_mapping(container.get("resources")).get("claims"))
    in_memory = {
        str(volume.get("name"))
        for volume in _list(pod.get("volumes"))
        if _mapping(volume.get("emptyDir")).get("medium") == "Memory"
    }
    mounted = {
        str(mount.get("name")) for mount in _list(container.get("volumeMounts")) if mount.get("mountPath") == _SHARED
    }
    return EngineContainer(
        where=f"{place}, container {container.get('name', '')}",
        words=tuple(words),
        unresolved=tuple(dict.fromkeys(unresolved)),
        image=str(container.get("image", "")),
        gpus=gpus[0] if gpus else None,
        claims=slices[0] if slices else "resources.claims" if claimed else "",
        node_labels={str(key): str(label) for key, label in _mapping(pod.get("nodeSelector")).items()},
        shares_memory=bool(in_memory & mounted) or pod.get("hostIPC") is True,
        started_s=_started_s(container),
        grace_s=_number(pod.get("terminationGracePeriodSeconds"), _GRACE_S),
    )


def _started_s(container: Mapping[str, Any]) -> int | None:
    """A startup probe holds the liveness probe back; a readiness probe ends nothing."""
    probe = container.get("startupProbe") or container.get("livenessProbe")
    if not isinstance(probe, Mapping):
        return None
    periods = _number(probe.get("periodSeconds"), _PERIOD_S) * _number(probe.get("failureThreshold"), _FAILURES)
    return _number(probe.get("initialDelaySeconds"), 0) + periods


def _command(container: Mapping[str, Any]) -> tuple[list[str], list[str]] | None:
    """What follows `vllm serve`, and the variables in it that have no value; None where it runs something else."""
    own, given = (_words(container.get(key)) for key in ("command", "args"))
    values = {str(entry.get("name")): str(entry["value"]) for entry in _list(container.get("env")) if "value" in entry}
    missing: list[str] = []
    words = [_KUBERNETES.sub(lambda match: values.get(match[1], match[0]), word) for word in (*own, *given)]
    if words and words[0].rpartition("/")[2] in _SHELLS:
        words = _of_shell(words)
    rest = _after_server(words)
    if rest is None and not own and "vllm" in str(container.get("image", "")):
        # The image's own command is the server; others of vLLM's images, such as routers, name no model.
        rest = words[1:] if words[:1] == ["serve"] else words
        named = rest[:1] if rest and not rest[0].startswith("-") else [w for w in rest if w.startswith("--model")]
        rest = rest if named else None
    if not rest:
        return None
    return [_filled(word, values, missing) for word in rest], missing


def _of_shell(words: Sequence[str]) -> list[str]:
    """The words of the script behind -c; "$@" are those behind it."""
    script = next((at for at, word in enumerate(words) if word.startswith("-") and word.endswith("c")), None)
    if script is None or script + 1 >= len(words):
        return [*words]
    lexer = shlex.shlex(_JOINED.sub(" ", words[script + 1]), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    try:
        return [part for word in lexer for part in (words[script + 3 :] if word == "$@" else [word])]
    except ValueError:
        return []


def _after_server(words: Sequence[str]) -> list[str] | None:
    for place, word in enumerate(words):
        command = words[place - 1].rpartition("/")[2] if place else ""
        if word == _SERVER or (word == "serve" and command in ("vllm", _CLI)):
            rest = list(words[place + 1 :])
            end = next((at for at, part in enumerate(rest) if part in _ENDS), len(rest))
            return rest[:end]
    return None


def _words(value: Any) -> list[str]:
    """A list of words; Kubernetes takes no text here, and charts that others read do."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return []
    return [str(word) for word in value if word is not None] if isinstance(value, list) else []


def _number(value: Any, usual: int) -> int:
    """A whole number, also as text; `usual` for what is none."""
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < _LONGEST else usual


def _filled(word: str, values: Mapping[str, str], missing: list[str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if name in values:
            return values[name]
        if match[4] is not None:
            return match[4]
        missing.append(name)
        return match[0]

    return _VARIABLE.sub(value, word)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []
