"""What measures the platform: an operator, Prometheus, Alertmanager, and what they read."""
