"""Emulated Talos machines: each serves the machine API on its own address and does what its config sets."""
