"""The ledger: claims, estimates and verdicts of every study, kept in result.json and shown in the report."""

from vitlab.ledger.beside import beside_imagenet
from vitlab.ledger.estimate import Estimate, seeds_needed, seeds_to_decide
from vitlab.ledger.intervals import coverage, failed_starts, mean_interval
from vitlab.ledger.origin import provenance
from vitlab.ledger.published import live_or_published, published_runs
from vitlab.ledger.study import (
    VERDICTS,
    Study,
    begin,
    conclude,
    conclude_by_full,
    conclude_together,
    finish,
    of_full,
    save_figure,
)
from vitlab.ledger.verdicts import above, all_of, any_of, below, given, judge, not_testable, within

__all__ = [
    "VERDICTS",
    "Estimate",
    "Study",
    "above",
    "all_of",
    "any_of",
    "begin",
    "below",
    "beside_imagenet",
    "conclude",
    "conclude_by_full",
    "conclude_together",
    "coverage",
    "failed_starts",
    "finish",
    "given",
    "judge",
    "live_or_published",
    "mean_interval",
    "not_testable",
    "of_full",
    "provenance",
    "published_runs",
    "save_figure",
    "seeds_needed",
    "seeds_to_decide",
    "within",
]
