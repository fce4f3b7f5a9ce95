"""Custom resource definitions in a cluster: `python -m definitions`, which `pulumi up` runs."""
