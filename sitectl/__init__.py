"""The command line around a site: read, prove, render, compare and explain it, mostly without engine or cluster."""
