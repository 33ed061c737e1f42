"""Where an effect of the paper is not found here: under which condition it is, or what it would take (§4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vitlab.ledger.claims import check
from vitlab.ledger.entries import NOT_YET, Entries, verdicts_of
from vitlab.ledger.second import Drawn
from vitlab.ledger.verdicts import Verdict


@dataclass(frozen=True)
class Condition:
    """What is known about a claim that is not reproduced as it stands."""

    claim: str
    words: str  # sentences without numbers: those are the ledger's
    notebook: str  # that shows it
    figure: str  # of that notebook, in its result.json


_CONDITIONS = (
    Condition(
        "C01",
        "Table 1 does not say what it counts. One reading gives all three of its numbers: with the hidden layer of the "
        "head for pre-training, without the classifier, and with patches of 16, 32 and 14 px.",
        "01_vit_from_scratch",
        "parameters",
    ),
    Condition(
        "C03",
        "Of the smaller pair the ResNet's lead shrinks with more images and, few-shot, the ViT overtakes, as in the "
        "paper's figure. Of the larger pair, which is judged, the order is reversed; recipes tuned for the fewest "
        "images halve the ViT's lead there.",
        "04_data_scaling",
        "full_pairs",
    ),
    Condition(
        "C04",
        "In the runs of full the larger ViT is ahead at every number of images; with the fewest of quick neither is. "
        "It would take ViTs that are further apart in size than these two, as the paper's are; that was not tried.",
        "04_data_scaling",
        "full",
    ),
    Condition(
        "C05",
        "The slope over the whole range is there in both draws. Nearly all of the rise is where images are few; then "
        "the few-shot task is near its ceiling: a further rise would take classes that are harder to tell apart.",
        "04_data_scaling",
        "full",
    ),
    Condition(
        "C06",
        "Few-shot on other classes of the world, the hybrid is behind at all budgets, and the gap narrows. With an "
        "hour each, one seed, it learns more of CIFAR-10 than a ViT with masked pre-training: a figure of the notebook "
        "on training.",
        "05_compute_scaling",
        "full",
    ),
    Condition(
        "C07",
        "That the ViT needs less compute holds in both draws; the figure shows the first. Whether half of the ResNet's "
        "is enough stays open: with each further set of seeds the factor has come nearer to two, and to tell it from "
        "two would take hundreds of them.",
        "05_compute_scaling",
        "full",
    ),
    Condition(
        "C09",
        "Once trainings are long enough, none is behind in every task, and tables, of one dimension or two and "
        "wherever they are added, end alike; in shorter trainings they do not. Relative ones lag, the less the longer: "
        "still longer trainings were not tried.",
        "11_design_choices",
        "positions_longer",
    ),
    Condition(
        "C15",
        "Masked prediction is ahead of training from scratch, and of pre-training on labels as well, which here are "
        "the ten classes of CIFAR-10. Whether labels of many more classes would win was tried with painted ones only: "
        "they do not.",
        "10_masked_patch_prediction",
        "arms",
    ),
    Condition(
        "C16",
        "The class token's lead shrinks to a fraction of itself when the training is four times as long: equality may "
        "take trainings that are longer still; that was not tried.",
        "11_design_choices",
        "heads",
    ),
    Condition(
        "C17",
        "Before fine-tuning the two optimisers differ little with either ResNet, by numbers of the ledger; SGD's lead "
        "with the larger one comes with the fine-tuning that follows, which the figure shows.",
        "11_design_choices",
        "optimizers",
    ),
    Condition(
        "C18",
        "Smaller patches help, as in the paper. The deepest model and the one with the widest MLP end with a higher "
        "training loss than the base (under the figure): whether longer trainings would help was not tried.",
        "11_design_choices",
        "shapes",
    ),
    Condition(
        "C19",
        "Over the seeds of all draws (the figure shows the first) axial attention costs more compute and is no more "
        "accurate than full attention of the same depth. Both are near the ceiling of the task: a harder one might "
        "tell them apart.",
        "11_design_choices",
        "axial",
    ),
    Condition(
        "C20",
        "With the smallest input the ViT is within the factor of the ResNet's speed that the rule allows; as the input "
        "grows it falls behind, by a factor that depends on the processor. One core; the paper measured on TPUv3.",
        "05_compute_scaling",
        "speed",
    ),
)

CONDITIONS: Mapping[str, Condition] = MappingProxyType({check(each.claim).id: each for each in _CONDITIONS})


def is_wanted(verdicts: Collection[str]) -> bool:
    """Whether a claim needs a condition: one of its verdicts, of whichever draw, is not "reproduced".

    A claim without a number needs none yet.

    >>> is_wanted(["reproduced"]), is_wanted(["reproduced", "inconclusive"]), is_wanted(["not yet"])
    (False, True, False)
    """
    return bool(set(verdicts) - {str(Verdict.REPRODUCED), NOT_YET})


def of(claim: str, entries: Entries, again: Drawn | None = None) -> Condition | None:
    """The condition of a claim that its entries or its second draw want one for; None where none is wanted or known.

    >>> entries = [("11_a", {"verdict": "not reproduced"})]
    >>> of("C16", entries).figure, of("C16", []), of("C12", entries)
    ('heads', None, None)
    """
    verdicts = [*verdicts_of(entries), *([again.second] if again else [])]
    return CONDITIONS.get(claim) if is_wanted(verdicts) else None
