"""What follows from a site and the facts: settings, models, machines, placing, and their text."""
