"""What others publish and the platform installs."""
