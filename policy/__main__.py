"""The pack: `pulumi preview --policy-pack policy`. Needs `pip install pulumi-policy` as well as the platform's.

Waivers and facts of a site are of the stack transform; a pack that is enforced from outside knows neither.
"""

import os
import sys
from pathlib import Path

# The engine starts a pack in its own folder.
sys.path.insert(0, str(Path(__file__).parent.parent))

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy  # type: ignore[import-not-found]

from policy.adapter import validation
from policy.listing import RULES
from policy.model import SiteFacts

SITE = SiteFacts(name=os.environ.get("PULUMI_STACK", "the site"))
LEVELS = {"error": EnforcementLevel.MANDATORY, "advice": EnforcementLevel.ADVISORY}

PolicyPack(
    name="inference-platform",
    policies=[
        StackValidationPolicy(
            name=rule.name,
            description=rule.says,
            enforcement_level=LEVELS[rule.level],
            validate=validation(rule, SITE),
        )
        for rule in RULES
    ],
)
