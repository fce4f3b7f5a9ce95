"""The emulated cluster: network namespace, control plane, nodes, kube-proxy, DNS, addresses and volumes."""
