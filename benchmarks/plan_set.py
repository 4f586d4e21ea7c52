"""All programs that have plans by hand."""

from __future__ import annotations

from plan_language import LANGUAGE_PLANS
from plan_networks import NETWORKS_PLANS

__all__ = ["PLANS"]

PLANS = (*LANGUAGE_PLANS, *NETWORKS_PLANS)
