"""What the jobs of CI call; the workflows beside it hold no logic."""
