"""A CrossGuard host for the platform's rules; it holds none of its own."""
