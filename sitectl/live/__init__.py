"""What a running site shows: its cluster, its objects, its GPUs, its versions."""
