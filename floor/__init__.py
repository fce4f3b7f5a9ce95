"""Leaves that every other package may use and that use none: problems, the Spec, names on the wire, reading files."""
