"""Emulated Talos machines: each serves the machine API on an address of its own and does what its config says."""
