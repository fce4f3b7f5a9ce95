"""What a change does: previews read, judged and counted."""
