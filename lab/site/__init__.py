"""The emulated site as a whole: its processes, their supervisor, and the commands that start, show and stop them."""
