"""Dashboards as code: one per question. Of developers alone: `make docs` writes what the program declares."""
