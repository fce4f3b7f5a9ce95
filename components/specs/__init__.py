"""What a site may set for each component. Nothing here imports the SDK: a site is read without it."""
