"""`python -m sitectl`."""

import sys

from sitectl.cli import main

if __name__ == "__main__":
    sys.exit(main())
