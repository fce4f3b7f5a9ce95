"""Who may call what, and whose requests come first."""
