"""The platform's own small programs, which run in its pods; each imports nothing but the standard library."""
