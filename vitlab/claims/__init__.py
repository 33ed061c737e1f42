"""Claims: what the paper says, our numbers from the evidence, and verdicts by rules (§4)."""

from vitlab.claims.estimate import Estimate
from vitlab.claims.report import begin, finish, show
from vitlab.claims.rules import verdict
from vitlab.claims.verdicts import above, all_of, given, judge

__all__ = ["Estimate", "above", "all_of", "begin", "finish", "given", "judge", "show", "verdict"]
