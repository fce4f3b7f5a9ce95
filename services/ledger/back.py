"""`python -m services.ledger.back`: takes the tables back to those that an earlier program has."""

from __future__ import annotations

import sys

from services import back
from services.ledger.tables import KEPT

if __name__ == "__main__":
    sys.exit(back.run(KEPT))
