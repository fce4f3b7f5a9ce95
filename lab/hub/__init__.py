"""An emulated Hugging Face hub: the part of its API that clients use to fetch models, over made-up files."""
