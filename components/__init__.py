"""What a platform is made of: one Pulumi component per file, from settings (Spec) to live objects (handle)."""
