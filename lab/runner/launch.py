"""From a container's spec to what is started: command, environment defaults and sandbox; no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.errors import LabError
from lab.paths import Lab
from lab.runner import images, podspec
from lab.runner.env import expand
from lab.runner.lifecycle import ImageError
from lab.runner.sandbox import DEFAULT_PATH, Mount, Sandbox, identity
from lab.runner.state import Object
from lab.vllm_cpu import container as vllm
from lab.vllm_cpu.arguments import for_a_cpu

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


def added_files(program: images.Program, container: Object, lab: Lab) -> images.HostFiles:
    """What a real vLLM runs from beside its image; nothing for others. Raises ImageError where the lab has no vLLM."""
    if not _is_vllm(container, program):
        return images.HostFiles(binds=())
    try:
        binds, links = vllm.host_files(lab)
    except LabError as error:
        raise ImageError(f'image "{container["image"]}": {error.what}: {error.fix}') from error
    return images.HostFiles(binds=binds, links=links)


def command_line(container: Object, program: images.Program, env: Mapping[str, str]) -> list[str]:
    """What runs: the spec's command over the image's entrypoint, its args over the image's own, variables expanded."""
    command = container.get("command")
    arguments = container.get("args")
    if command:
        words = [*command, *(arguments or [])]
    else:
        words = [*program.entrypoint, *(program.arguments if arguments is None else arguments)]
    if _is_vllm(container, program):
        words, _ = for_a_cpu(words)
    return [expand(str(word), env) for word in words]


def default_env(pod: Object, container: Object, program: images.Program) -> dict[str, str]:
    """What a container runtime and an image set when the spec does not: PATH, HOSTNAME, HOME, USER."""
    uid = identity(podspec.security(pod, container), program.user).uid
    user, home = _KNOWN_HOMES.get(uid, (str(uid), "/"))
    own = vllm.VARIABLES if _is_vllm(container, program) else {}
    return {"PATH": DEFAULT_PATH, "HOSTNAME": podspec.hostname(pod), "HOME": home, "USER": user, **own}


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


def _is_vllm(container: Object, program: images.Program) -> bool:
    return program.serves and not container.get("command")
