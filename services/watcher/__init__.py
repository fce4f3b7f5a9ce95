"""The watcher: takes a node with a faulty GPU out of service where two sources agree, and lets a new node in."""
