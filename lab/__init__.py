"""The emulated site: real control plane, real gateways, real endpoint picker; only GPUs and weights are simulated."""
