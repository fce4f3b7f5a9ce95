"""How many digits an amount of a currency has, to which bills are rounded."""

from __future__ import annotations

_USUAL = 2
# Minor units of ISO 4217, list one (SIX, the standard's maintenance agency), where these are not two.
_OTHERS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS = {currency: digits for digits, listed in _OTHERS.items() for currency in listed.split()}


def digits_of(currency: str) -> int:
    """Behind the point."""
    return _DIGITS.get(currency, _USUAL)


def rounded(pico: int, currency: str) -> str:
    """An amount in pico-units, half up to the smallest unit of its currency."""
    digits = digits_of(currency)
    unit = 10 ** (12 - digits)
    units = (pico + unit // 2) // unit
    whole, rest = divmod(units, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)
