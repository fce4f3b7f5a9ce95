"""What a site may say, and how its file is read and checked."""
