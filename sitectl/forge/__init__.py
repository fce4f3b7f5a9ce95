"""Calls of a forge (GitHub, GitLab): changes, comments on them, and issues."""
