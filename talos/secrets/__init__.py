"""Secrets of a cluster, and the credentials made from them."""
