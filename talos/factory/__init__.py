"""Image factories: schematics, their extensions, and where images are."""
