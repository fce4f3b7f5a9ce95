"""The platform's own small programs, which run in its pods; a folder each, beside what those with a database share."""
