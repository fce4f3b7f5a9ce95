"""What a site may set, and how its file is read and checked."""
