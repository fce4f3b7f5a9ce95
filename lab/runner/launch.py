"""From a container's spec to what is started: command, environment defaults and sandbox; no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.runner import images, podspec
from lab.runner.env import expand
from lab.runner.lifecycle import ImageError
from lab.runner.sandbox import DEFAULT_PATH, Mount, Sandbox, identity
from lab.runner.state import Object

_KNOWN_HOMES = {0: ("root", "/root"), 65532: ("nonroot", "/home/nonroot")}


def program_of(image: str) -> images.Program:
    """Raises ImageError for an image without a local program, and for a name that is none."""
    try:
        program = images.find(image)
    except ValueError as error:
        raise ImageError(str(error)) from None
    if program is None:
        raise ImageError(images.unknown_image_message(image))
    return program


def command_line(container: Object, program: images.Program, env: Mapping[str, str]) -> list[str]:
    """What runs: the spec's command over the image's entrypoint, its args over the image's own, variables expanded."""
    command = container.get("command")
    arguments = container.get("args")
    if command:
        words = [*command, *(arguments or [])]
    else:
        words = [*program.entrypoint, *(program.arguments if arguments is None else arguments)]
    return [expand(str(word), env) for word in words]


def default_env(pod: Object, container: Object, program: images.Program) -> dict[str, str]:
    """What a container runtime and an image set when the spec does not: PATH, HOSTNAME, HOME, USER."""
    uid = identity(podspec.security(pod, container), program.user).uid
    user, home = _KNOWN_HOMES.get(uid, (str(uid), "/"))
    return {"PATH": DEFAULT_PATH, "HOSTNAME": podspec.hostname(pod), "HOME": home, "USER": user}


def sandbox_of(
    pod: Object,
    container: Object,
    program: images.Program,
    files: images.HostFiles,
    mounts: Sequence[Mount],
    env: Mapping[str, str],
) -> Sandbox:
    """The sandbox of one container."""
    security = podspec.security(pod, container)
    return Sandbox(
        hostname=podspec.hostname(pod),
        command=command_line(container, program, env),
        files=files,
        mounts=mounts,
        identity=identity(security, program.user),
        working_dir=container.get("workingDir") or "/",
        read_only_root=bool(security.get("readOnlyRootFilesystem", False)),
    )
