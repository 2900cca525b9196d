"""Settings of hypothesis: the same examples in CI every time, fresh ones at the desk.

Many more of them: ``pytest --hypothesis-profile=thorough``.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "desk", max_examples=15, deadline=None, database=None, suppress_health_check=QUIET
)
settings.register_profile("ci", settings.get_profile("desk"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("desk"), max_examples=500)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
