"""The command line: how a command is found, called and ended, and what all of them share."""
