"""Ports of nodes at which Prometheus reads metrics: the firewall opens them, and the scrapes name them."""

from __future__ import annotations

NODE_EXPORTER = 9100
KUBELET = 10250
ETCD = 2381
"""By itself etcd has metrics only where it serves clients, who need a certificate of its authority."""
CILIUM_AGENT, HUBBLE = 9962, 9965
"""Both of the same pod, in the network of its node."""
