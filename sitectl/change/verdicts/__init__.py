"""The effect of a change on users of the site: a pure function of one change, one module per part of the platform."""
