"""Waiting: until an object is ready, or gone."""
