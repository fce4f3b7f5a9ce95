"""A model: its servers, its pool and picker, its route."""
