"""The lab pod runner: takes the kubelet's place and executes Pods of emulated nodes with local programs."""
