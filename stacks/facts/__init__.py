"""What is published and pinned: catalogue, hardware, versions, and the fields and flags of other programs."""
