"""The way in: controllers, front door, listener, and their protection."""
