"""`python -m services.directory.back`: takes the tables back to those that an earlier program has."""

from __future__ import annotations

import sys

from services import back
from services.directory.tables import KEPT

if __name__ == "__main__":
    sys.exit(back.run(KEPT))
