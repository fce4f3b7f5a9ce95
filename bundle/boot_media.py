"""What new machines boot from: an ISO or the files of a network boot, as an image factory builds them per schematic."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, get_args

import httpx

from bundle.errors import BundleError
from bundle.fetching import DRAFT
from bundle.schematics import FactoryImage, make_known
from floor.digests import sha256_of
from talos.factory.site import FactorySite

Kind = Literal["iso", "pxe", "none"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# No registry has boot media, so --from is no way around the factory.
_INSTEAD = "leave boot media out: --boot-media none"
# A factory builds an image when it is first asked for it, and sends nothing until then.
_SILENCE_S = 600.0
# What the name of a sum's file adds to that of its medium.
_SUM = ".sha256"


def folder_of(image: FactoryImage) -> str:
    """Below the folder of boot media."""
    return f"{image.schematic.id}/{image.talos}"


def bring_boot_media(
    images: Iterable[FactoryImage], kind: Kind, folder: Path, note: Callable[[str], None]
) -> dict[str, str]:
    """sha256 in hex of each file, by its path in the folder. Raises BundleError.

    The factory has no sums of them, so each gets a file `NAME.sha256` beside it; one that is as that file has it stays.
    What an earlier call brought and nothing wants now is removed.
    """
    digests = dict[str, str]()
    for image in images:
        wanted = {f"{folder_of(image)}/{address.rpartition('/')[2]}": address for address in _addresses(image, kind)}
        lacking = {path: address for path, address in wanted.items() if not _is_whole(folder / path)}
        if lacking:
            make_known([image], note, instead=_INSTEAD)
        for path, address in lacking.items():
            note(f"{folder.name}: {address}")
            _bring(address, folder / path)
        digests |= {path: _sum_of(folder / path) for path in wanted}
    # As deep as `folder_of` puts them: what is elsewhere is an operator's.
    for beside in sorted(folder.glob(f"*/*/*{_SUM}")):
        file = beside.with_name(beside.name.removesuffix(_SUM))
        if str(file.relative_to(folder)) not in digests:
            file.unlink(missing_ok=True)
            beside.unlink()
    return digests


def with_sums(paths: Iterable[str]) -> set[str]:
    """The files of boot media, and those beside them."""
    return {name for path in paths for name in (path, f"{path}{_SUM}")}


def _addresses(image: FactoryImage, kind: Kind) -> tuple[str, ...]:
    site = FactorySite(image.factory)
    assets = site.assets(image.schematic.id, image.talos, secure_boot=image.secure_boot)
    match kind:
        case "iso":
            return (assets.iso,)
        case "pxe" if image.secure_boot:
            # Firmware with Secure Boot on starts no kernel that lies beside its initramfs: those two are not signed.
            return (assets.uki,)
        case "pxe":
            # The factory's script names addresses of the factory; these files are what it leads to.
            return (assets.kernel, assets.initramfs, assets.command_line)
        case "none":
            return ()


def _bring(address: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=DRAFT) as drafts:
        draft = Path(drafts) / target.name
        _download(address, draft)
        # The sum first: without the file it states nothing.
        _sum_file(target).write_text(f"{sha256_of(draft)}  {target.name}\n", encoding="utf-8")
        draft.replace(target)


def _download(address: str, file: Path) -> None:
    again = "check that this machine reaches the image factory, then call this again: what is there stays"
    plain = {"accept-encoding": "identity"}
    try:
        with httpx.stream("GET", address, headers=plain, follow_redirects=True, timeout=_SILENCE_S) as answer:
            if answer.status_code != httpx.codes.OK:
                raise BundleError(f"{address} cannot be fetched", got=f"HTTP {answer.status_code}", fix=again)
            with file.open("wb") as content:
                for piece in answer.iter_bytes():
                    content.write(piece)
    # A proxy of the environment that httpx cannot use is one of the last three.
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
        raise BundleError(f"{address} cannot be fetched", got=str(error) or type(error).__name__, fix=again) from None


def _sum_file(file: Path) -> Path:
    return file.with_name(f"{file.name}{_SUM}")


def _sum_of(file: Path) -> str:
    """As the file beside it has it; empty without one."""
    try:
        return _sum_file(file).read_text(encoding="utf-8", errors="replace").partition(" ")[0]
    except FileNotFoundError:
        return ""


def _is_whole(file: Path) -> bool:
    return file.is_file() and sha256_of(file) == _sum_of(file)
