"""CPU time of the programs on a request's way through the lab's gateway."""

from __future__ import annotations

import time

from benchmarks import processes
from lab.paths import Lab

CLIENT, REPLICA = "client", "replica"
_PROGRAMS = {
    "envoy": "Envoy",
    "ai-gateway-extproc": "AI gateway",
    "app": "AI gateway",
    "epp": "picker",
    "gatekeeper": "gatekeeper",
    "ratelimit": "limit service",
    "valkey-server": "counters",
    "llm-d-inference-sim": REPLICA,
}
_IDLE_S = 5.0


class Meter:
    """CPU seconds since its creation of this process, as the client, and of what a request passes, by name."""

    def __init__(self, lab: Lab) -> None:
        self._client_s = time.process_time()
        # One by one, because an Envoy that still drains may end in between.
        self._before = {
            pid: (name, processes.cpu_s(pid) or 0.0)
            for program, pids in processes.lab_programs(lab).items()
            if (name := _PROGRAMS.get(program))
            for pid in pids
        }

    def cpu_s(self) -> dict[str, float]:
        total = {CLIENT: time.process_time() - self._client_s}
        for pid, (name, before) in self._before.items():
            total[name] = total.get(name, 0.0) + max(0.0, (processes.cpu_s(pid) or 0.0) - before)
        return total


def idle(lab: Lab) -> dict[str, float]:
    """CPU seconds a second that the same processes use without a request: probes, scrapes of all models' replicas."""
    meter = Meter(lab)
    # What they use in this time is what is measured.
    time.sleep(_IDLE_S)
    return {name: seconds / _IDLE_S for name, seconds in meter.cpu_s().items()}
