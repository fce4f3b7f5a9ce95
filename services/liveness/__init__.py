"""Whether an engine makes progress. Runs beside it, under the Python of the engine's image."""
