"""What a change means for those who use the site: a pure function of one change, one module a part of the platform."""
