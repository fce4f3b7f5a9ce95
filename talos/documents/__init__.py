"""The documents of a machine config: what each field may hold, and how they are patched and rendered."""
