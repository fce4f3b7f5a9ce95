"""Namespaces of programs of others: what installs them and the rule over pod security name the same ones."""

from __future__ import annotations

ENVOY_GATEWAY = "envoy-gateway-system"
AI_GATEWAY = "envoy-ai-gateway-system"
GPU_STACK = "gpu-operator"
STORAGE = "longhorn-system"
ADDRESSES = "metallb-system"
MONITORING = "inference-monitoring"

PRIVILEGED = (AI_GATEWAY, ENVOY_GATEWAY, GPU_STACK, STORAGE, ADDRESSES)
"""Those whose pods need what pod security otherwise refuses."""
