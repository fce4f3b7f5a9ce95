"""What a checkout declares, without an engine and without a cluster."""
