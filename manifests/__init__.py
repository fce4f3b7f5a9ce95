"""Text that is not Kubernetes objects, and its one renderer."""
