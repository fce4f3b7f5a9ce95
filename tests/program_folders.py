"""The folders of the program, for tests that run it from a folder of their own."""

FOLDERS = ("components", "floor", "manifests", "policy", "stacks", "talos")
