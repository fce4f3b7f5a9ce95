"""Keeps the API keys that people create while the platform runs, in PostgreSQL, as digests only."""
