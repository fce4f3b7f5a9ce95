"""What a platform is made of: one Pulumi component a file, from the site's words (Spec) to live objects (handle)."""
