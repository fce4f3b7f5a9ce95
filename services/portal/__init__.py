"""Where people choose a model, read its proof, and get an endpoint and a key."""
