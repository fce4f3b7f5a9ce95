"""Brings a model's weights into its volume, and checks them there. Runs under the Python of the engine's image."""
