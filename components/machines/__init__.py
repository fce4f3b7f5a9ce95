"""A cluster out of machines."""
