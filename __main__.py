"""One stack is one site: plan it, declare its platform under the platform's rules, export what its users need."""

import gc

import pulumi

from stacks.program import debug_messages, ending, interrupts, site_rules, source_positions
from stacks.program.engine_config import plan_stack
from stacks.program.errors import reported_by_the_engine
from stacks.program.platform import declare_platform

# A site's objects live to the end: the default of 700 goes through them all again and again, a fifth of the CPU time.
gc.set_threshold(50_000, 20, 100)
interrupts.end_without_a_traceback()
debug_messages.send_none()
ending.wait_for_registrations_first()
with reported_by_the_engine():
    plan = plan_stack(pulumi.get_stack())
    for warning in plan.warnings:
        pulumi.log.warn(warning.text(plan.file))
    with source_positions.left_out(), site_rules.enforced(pulumi.get_stack(), plan):
        platform = declare_platform(plan)
pulumi.export("endpoint", platform.endpoint)
pulumi.export("models", platform.models)
pulumi.export("keys", platform.keys)
if platform.kubeconfig is not None:
    pulumi.export("kubeconfig", platform.kubeconfig)
    pulumi.export("talosconfig", platform.talosconfig)
