"""What a forge (GitHub, GitLab) is asked for: comments on a change, and issues."""
