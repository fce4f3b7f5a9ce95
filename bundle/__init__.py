"""Files of other projects that the program installs: fetched as their publishers offer them, checked, written once."""
