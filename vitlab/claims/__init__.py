"""Claims: what the paper says, our numbers from the evidence, and verdicts by rules (§4)."""

from vitlab.claims.estimate import Estimate
from vitlab.claims.report import begin, finish, imagenet, show
from vitlab.claims.rules import verdict
from vitlab.claims.verdicts import above, all_of, any_of, below, given, judge, within

__all__ = [
    "Estimate",
    "above",
    "all_of",
    "any_of",
    "begin",
    "below",
    "finish",
    "given",
    "imagenet",
    "judge",
    "show",
    "verdict",
    "within",
]
