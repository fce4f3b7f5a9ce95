"""Stand-ins for provider plugins whose official binaries no package registry carries."""
