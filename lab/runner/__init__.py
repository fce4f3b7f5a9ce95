"""The lab pod runner: replaces the kubelet and executes Pods of emulated nodes with local programs."""
