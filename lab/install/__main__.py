"""`python -m lab.install`."""

from lab.install.installer import install
from lab.paths import Lab

install(Lab.from_environment())
