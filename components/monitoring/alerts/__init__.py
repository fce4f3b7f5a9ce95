"""The platform's alerts, a file for each part that they are about."""
