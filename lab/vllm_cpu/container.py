"""A container of vLLM's image on this machine: what it finds there in place of the image's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.paths import Lab
from lab.vllm_cpu import environment

# Of memory, for one engine; the tiny model's token takes 1 KiB of it.
CACHE_GIB = 1
VARIABLES: Mapping[str, str] = {
    "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
    # Each engine would take the machine's first core for its own.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""What the image sets where the pod does not."""
# vLLM asks lscpu for the machine's cores, which reads them there.
_CORES = Path("/sys/devices/system")


def host_files(lab: Lab) -> tuple[tuple[tuple[Path, str], ...], tuple[tuple[str, str], ...]]:
    """Folders to bind at their own paths, and links. Raises LabError where the lab has no vLLM."""
    python = environment.python_of(lab)
    folders = (python.parent.parent, environment.base_of(lab), _CORES)
    binds = tuple((folder, str(folder)) for folder in folders if not folder.is_relative_to("/usr"))
    return binds, ((str(python.with_name("vllm")), "/usr/local/bin/vllm"),)
