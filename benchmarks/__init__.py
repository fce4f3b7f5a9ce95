"""Measurements of the lab and of the platform on it; `python -m benchmarks` runs them."""
