"""Talos's machine API: one typed client over two gRPC transports."""
