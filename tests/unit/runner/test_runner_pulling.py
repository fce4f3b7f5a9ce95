"""What a container shows while its image cannot be pulled, without a lab."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from lab.runner.backoff import RestartBackoff
from lab.runner.lifecycle import ContainerLoop, PullError
from lab.runner.state import ContainerState, Object, Waiting

IMAGE = "docker.io/a/b:v1"


class Pod:
    """A pod whose image the registry gives at the third attempt; it notes what its container shows."""

    prober: Any = None
    pod_ip = "198.18.1.2"

    def __init__(self, spec: Object) -> None:
        self.pod: Object = {"metadata": {"uid": "u"}, "spec": {"restartPolicy": "Never", "containers": [spec]}}
        self.state = ContainerState(name="c", image=IMAGE, kind="main", current=Waiting(reason="ContainerCreating"))
        self.shown: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.launched: list[tuple[str, int]] = []
        self.begun: tuple[Any, ...] = ()

    def changed(self) -> None:
        if isinstance(self.state.current, Waiting):
            self.shown.append((self.state.current.reason, self.state.current.message))

    def event(self, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    def started(self, container: Object, instance: Any, run: int, started_at: str) -> None:
        self.begun = (container, instance, run, started_at)

    async def launch(self, container: Object, run: int) -> Any:
        self.launched.append((container["image"], run))
        if len(self.launched) < 3:
            raise PullError(f'failed to pull image "{IMAGE}": MANIFEST_UNKNOWN')
        exited = asyncio.get_running_loop().create_future()
        exited.set_result(0)
        return SimpleNamespace(exited=exited)

    def termination_message(self, container: Object) -> str:
        return str(container.get("said", ""))


def test_a_pull_that_fails_backs_off_and_is_tried_again() -> None:
    spec: Object = {"name": "c", "image": IMAGE}
    pod = Pod(spec)
    asyncio.run(ContainerLoop(pod, spec, pod.state, RestartBackoff(base_s=0.01)).run())
    text = f'failed to pull image "{IMAGE}": MANIFEST_UNKNOWN'
    once = [
        ("ErrImagePull", text),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {text}'),
    ]
    assert pod.shown == once * 2
    assert [event[:2] for event in pod.events] == [("Warning", "Failed"), ("Warning", "BackOff")] * 2
    # It counts no restart: nothing had run.
    assert pod.launched == [(IMAGE, 0)] * 3
    assert pod.begun[2] == 0
