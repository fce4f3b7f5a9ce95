"""Talos's machine API: one typed client over one transport, gRPC on HTTP/2."""
