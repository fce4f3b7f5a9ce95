"""Calls of a forge (GitHub, GitLab): comments on a change, and issues."""
