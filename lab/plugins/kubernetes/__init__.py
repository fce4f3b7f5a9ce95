"""Lab stand-in for the pulumi-kubernetes provider plugin, over the kubernetes client library."""

# The SDK asks the engine for exactly its own version, so the stand-in answers with the one whose behaviour it follows.
VERSION = "4.34.2"

STAND_IN = f"lab stand-in for pulumi-resource-kubernetes {VERSION}, not the official plugin"
