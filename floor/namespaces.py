"""Namespaces that several rooms name: those of the platform, and of programs of others."""

from __future__ import annotations

from typing import Literal

PodSecurity = Literal["restricted", "baseline", "privileged"]
"""What the admission of a namespace lets its pods be."""

# Models, their Jobs and pickers.
MODELS = "inference-models"
# The endpoint.
GATEWAY = "inference-gateway"

ENVOY_GATEWAY = "envoy-gateway-system"
AI_GATEWAY = "envoy-ai-gateway-system"
GPU_STACK = "gpu-operator"
NETWORK = "nvidia-network-operator"
STORAGE = "longhorn-system"
ADDRESSES = "metallb-system"
# Passwords of BGP sessions; Cilium's agents read no other Secrets for them.
BGP_SECRETS = "cilium-bgp-secrets"
MONITORING = "inference-monitoring"
# What reads nodes from within.
HOSTS = "inference-hosts"
# What reads the logs of pods on each node, and where they are kept.
LOGS = "inference-logs"
CERTIFICATES = "cert-manager"
SECRETS = "external-secrets"
AUTOSCALING = "keda"
DNS = "external-dns"
# What runs replicas that span several nodes.
GROUPS = "lws-system"
# PostgreSQL of the platform's own, and what runs it.
DATABASE = "inference-database"
DATABASE_OPERATOR = "cnpg-system"
# The one whose pods Talos lets take snapshots.
ETCD_BACKUP = "etcd-backup"

PRIVILEGED = (AI_GATEWAY, ENVOY_GATEWAY, GPU_STACK, NETWORK, STORAGE, ADDRESSES, HOSTS, LOGS)
"""Those whose pods need what pod security otherwise refuses."""
