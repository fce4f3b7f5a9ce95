"""`python -m talos`: each command brings one machine into a state, and may be run again at any time."""
