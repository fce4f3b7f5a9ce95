"""What must agree between the keys of a site, over plain values: they speak also where other keys are wrong."""
