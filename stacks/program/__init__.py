"""The running program: wiring, provider, and what the engine shows of it."""
