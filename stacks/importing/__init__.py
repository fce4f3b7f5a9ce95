"""Catalogue entries out of models' own files."""
