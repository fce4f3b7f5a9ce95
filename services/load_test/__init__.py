"""What all GPUs of a node do under load, before it takes replicas. Run by the engine's image, which has torch."""
