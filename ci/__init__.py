"""What the jobs of CI call; the workflows next to it hold no logic."""
