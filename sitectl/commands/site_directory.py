"""The directory of keys of a site, as commands ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sitectl.live import key_directory, site_cluster
from sitectl.live.key_directory import KeyDirectory
from sitectl.offline import checkout
from sitectl.shell.command import CommandContext


@contextmanager
def site_directory(context: CommandContext, site: str) -> Iterator[KeyDirectory]:
    """It, while a line of progress is shown. Raises SitectlError where it does not answer, or the site has none."""
    file = checkout.site_files(context.project, [site])[site]
    with context.progress.layer(f"ask the directory of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with key_directory.of_cluster(cluster) as directory:
            yield directory
