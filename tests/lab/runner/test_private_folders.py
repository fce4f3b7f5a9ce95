"""What another user of the machine reads of a running lab: nothing (its folder holds tokens and keys of all pods)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kubernetes import client

from lab.paths import Lab
from tests.lab.runner.pods import get, run_pod, wait_ready, web

NOBODY = 65534


def readable_by_nobody(folder: Path) -> list[str]:
    """What `find` as nobody says it could read, begun in the folder itself: what is above is not the lab's."""
    listed = subprocess.run(
        ["find", ".", "-readable"],
        cwd=folder,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.splitlines()


def test_another_user_reads_no_token_key_or_log(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    container, volumes = web(securityContext={"runAsUser": 1234})
    run_pod(core, namespace, "web", container, volumes=volumes)
    pod = wait_ready(core, namespace, "web")
    tokens = list((bare_lab.pods / pod.metadata.uid).rglob("token"))
    assert tokens, "the pod has no token, so this shows nothing"
    assert readable_by_nobody(bare_lab.home) == []
    assert readable_by_nobody(bare_lab.pods) == []
    assert readable_by_nobody(bare_lab.logs) == []
    # The pod's own user, another than root, reads what is mounted into it.
    assert get(pod.status.pod_ip)["uid"] == 2_000_001_234


def test_no_key_of_the_lab_is_open_even_where_its_folder_is(bare_lab: Lab) -> None:
    named = [bare_lab.kubeconfig, *bare_lab.home.rglob("*.key"), *(bare_lab.home / "credentials").glob("*")]
    assert len(named) > 3
    assert {oct(path.stat().st_mode & 0o077) for path in named if path.is_file()} == {"0o0"}
