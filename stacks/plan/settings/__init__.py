"""Every setting that follows from a proof, defined once: value, unit, formula, what may override it, and its use."""
