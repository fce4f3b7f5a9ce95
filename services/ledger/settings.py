"""Files that the ledger works from."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from services.failure import ServiceError
from services.ledger.prices import PriceBook, book_of
from services.mounted import has_secret, secret

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class LedgerSettings:
    """Where each of them is."""

    database_url: Path
    prices: Path
    writer_token: Path
    operator_token: Path
    has_unusable_prices: bool = False
    """Whether the file of prices is not usable, so that those that were read before are in use."""
    _book: PriceBook | None = field(default=None, init=False)
    _read: tuple[int, ...] = field(default=(), init=False)

    def url(self) -> str:
        """Of the database. Raises ServiceError."""
        return secret(self.database_url).decode()

    def is_writer(self, token: str) -> bool:
        """Whether the token is a shipper's. Raises ServiceError."""
        return has_secret(self.writer_token, token)

    def is_operator(self, token: str) -> bool:
        """Whether the token is an operator's. Raises ServiceError."""
        return has_secret(self.operator_token, token)

    def prices_in_use(self) -> PriceBook:
        """The price book, read again when its file has changed. Raises ServiceError where there never was one."""
        read = _state(self.prices)
        if self._book is None or read != self._read:
            try:
                self._book, self.has_unusable_prices = book_of(self.prices), False
            except ServiceError as error:
                if self._book is None:
                    raise
                self.has_unusable_prices = True
                log.error("the earlier prices stay in use: %s", error.message)
            self._read = read
        return self._book

    def check(self) -> None:
        """Raise ServiceError for a file that is missing, empty or not in its form."""
        for file in (self.database_url, self.writer_token, self.operator_token):
            secret(file)
        self.prices_in_use()


def _state(file: Path) -> tuple[int, ...]:
    """Another one once the file is another one."""
    try:
        state = file.stat()
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns)
