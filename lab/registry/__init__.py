"""A real image registry in the lab, and images that the lab makes of its own programs."""
