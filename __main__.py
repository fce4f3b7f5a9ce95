"""One stack is one site: load it, declare its platform under the platform's rules, export what its users need."""

import pulumi

from stacks.facts import versions
from stacks.program import debug_messages, interrupts, site_rules
from stacks.program.engine_config import trace_stack
from stacks.program.errors import told_by_the_engine
from stacks.program.platform import declare_platform

interrupts.end_without_a_traceback()
debug_messages.hide_outputs()
with told_by_the_engine():
    loaded = trace_stack(pulumi.get_stack())
    site = loaded.site
    for warning in loaded.warnings:
        pulumi.log.warn(warning.text(loaded.file))
    with site_rules.enforced(pulumi.get_stack(), site):
        platform = declare_platform(site, versions.load())
pulumi.export("endpoint", platform.endpoint)
pulumi.export("models", platform.models)
pulumi.export("keys", platform.keys)
if platform.kubeconfig is not None:
    pulumi.export("kubeconfig", platform.kubeconfig)
    pulumi.export("talosconfig", platform.talosconfig)
