"""What others wrote, as facts and figures: models' own files, and manifests that run vLLM."""
