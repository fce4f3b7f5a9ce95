"""The only reader of our YAML files."""
