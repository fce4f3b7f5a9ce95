"""Talos Linux from the outside: machine-config documents, secrets, image factory, machine API. Knows no Pulumi."""
