"""Checks between the keys of a site. They take plain values, so they run also where other keys are wrong."""
