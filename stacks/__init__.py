"""What a site is, whether it can work, and how it is wired."""
