"""What a site may say of each component. Nothing here imports the SDK: a site is read without it."""
