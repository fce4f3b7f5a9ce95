"""Names that the watcher, its pod and those who read its marks share."""

from __future__ import annotations

SERVICE = "watcher"
"""Its Deployment, account and Lease, in the namespace of what measures."""
PORT = 8080
"""Of its metrics."""

FAULT = "inference-platform/gpu-fault"
"""Key of the taint on a node that it took out, with the worst fault's code, and of the annotation beside it, with the
codes of all, joined by commas."""
FAULT_SINCE = "inference-platform/gpu-fault-since"
"""Annotation: when it was last taken out."""
SUSPECT = "inference-platform/gpu-suspect"
"""Annotation of a node about which one source alone reports something, or that it may not take out: why."""
MISSING = "gpu-missing"
"""Code of a GPU that DCGM does not report any more beside others of its node."""
CHECK, CHECK_VALUE = "inference-platform/gpu-check", "pending"
"""Key of the taint of a new node until its GPUs are checked, and its value."""
CHECKED = "inference-platform/gpu-checked"
"""Annotation: when they were."""
LOAD_TEST = "inference-platform/gpu-load-test"
"""Label of a node whose load test is to run, with the name of the test."""
LOADED = "inference-platform/gpu-load-tested"
"""Annotation: what its GPUs reached in it."""

EVERY_S = 15
"""Between two looks."""
AGREE_S = 120
"""For so long must both sources agree."""
APART_S = 3600
"""Between the drains of two nodes."""
