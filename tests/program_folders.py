"""The folders of the program, for tests that run it from a folder of their own, and of all that is installed."""

FOLDERS = ("components", "definitions", "floor", "manifests", "policy", "services", "stacks", "talos")
PRODUCT = ("bundle", "ci", *FOLDERS, "sitectl")
