"""The lab pod runner: stands in for the kubelet and executes Pods of emulated nodes with local programs."""
