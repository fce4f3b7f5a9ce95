"""Variables of the environment that give `python -m talos` what is secret."""

from __future__ import annotations

from floor import kubectl

CONFIG = "TALOS_MACHINE_CONFIG"
TALOSCONFIG = "TALOSCONFIG_TEXT"
SECRETS = "TALOS_SECRETS_TEXT"
KUBECONFIG = kubectl.VARIABLE
