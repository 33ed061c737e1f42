"""The decision rules: one function a claim, from the committed evidence, pooled over all its seeds.

A difference is paired by seed and has a 95 % t interval. A condition holds where its whole interval does, fails where
the whole interval does not, and is undecided otherwise, as it is with fewer than five seeds. docs/LOG.md dates rules.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from vitlab.analysis.filters import white_noise_share
from vitlab.claims.claims import ALL
from vitlab.claims.estimate import Estimate
from vitlab.claims.verdicts import Condition, Ruling, above, all_of, any_of, below, given, judge, within
from vitlab.studies import measure, table, tables
from vitlab.studies.statistics import failed_starts, frontier, paired

AHEAD = 1.0  # percentage points of accuracy: a smaller lead is none
EQUAL = 2.0  # none is a difference whose whole interval is smaller: Table 8's kinds differ by 0.3, its "none" by 2.8
PAIRS = {size: (f"Lab-{size}/8", f"BiT-{size}/8") for size in ("Mu", "Ti", "S")}  # ViT and ResNet of `data_scaling`
MEASURES = {"transfer, 100 classes": "10-shot among 100 other classes", "transfer": "10-shot among ten other classes"}
MEASURES |= {"test_accuracy": "held-out images"}  # of C03 to C05: the first decides, the others are told
ACCURACIES = (0.7, 0.8, 0.9)  # at which C07 compares
Numbers = dict[str, Estimate]  # by name


class Judged(NamedTuple):
    """What the evidence says of a claim."""

    ruling: Ruling
    numbers: Numbers
    note: str = ""  # more in a sentence


@functools.cache
def verdict(name: str) -> Judged:
    """Judge a claim by the committed evidence."""
    if name not in ALL:
        raise ValueError(f"unknown claim {name!r}: expected one of C01 to C21, L01, L02")
    judged = globals()[name.lower()]()
    return judged._replace(note="; ".join(filter(None, (ALL[name].note, judged.note))))


def lead(runs: pd.DataFrame, first: str, second: str, column: str = "test_accuracy") -> Estimate:
    """Subtract one arm's accuracy from another's, in percentage points, paired by seed.

    `runs` has a row a run of one task: arm, seed, n_test, n_classes and `column` (0…1). Where some seeds of an arm
    never left chance while others did, there is no interval (see `failed_starts`).
    """
    wide = runs[runs["arm"].isin((first, second))].pivot(index="seed", columns="arm", values=column).dropna()
    n_images, chance = int(runs["n_test"].iloc[0]), 1 / int(runs["n_classes"].iloc[0])
    found = Estimate.of(100 * (wide[first] - wide[second]), "points")
    failed = any(failed_starts(wide[arm], n_images, chance).any() for arm in (first, second))
    return dataclasses.replace(found, low=None, high=None) if failed else found


def as_factor(log10s: np.ndarray | pd.Series, counted: str = "seeds") -> Estimate:
    """Estimate a factor, the geometric mean, from logarithms to the base 10."""
    mean = Estimate.of(log10s, counted=counted)
    low, high = (None if end is None else 10**end for end in (mean.low, mean.high))
    return Estimate(10**mean.value, low, high, mean.n, "×", counted)


# --- C01, C02: the model ----------------------------------------------------------------------------------------------
def c01() -> Judged:
    """Counts equal timm's and the formula's; as pre-trained they round to the millions of Table 1; 197 tokens."""
    checks = tables.evidence("checks").set_index(["check", "model", "against"]).sort_index()
    tokens = int(checks.loc[("tokens", "ViT-B/16"), "ours"].item())
    equal, rounded, numbers = True, [], {}
    for name, dim in {"ViT-B/16": 768, "ViT-L/32": 1024, "ViT-H/14": 1280}.items():
        counts = checks.loc[("parameters", name)]
        equal &= not counts.loc[["formula", "timm"], "difference"].any()
        ours, paper = counts.loc["paper", ["ours", "theirs"]]
        ours += (dim + 1) * (dim - 1_000)  # the hidden layer of pre-training's head in place of the classifier
        rounded.append(given(bool(round(ours / 1e6) == paper / 1e6), f"{paper / 1e6:.0f}M for {name}"))
        numbers[f"parameters of {name}"] = Estimate.exact(int(ours))
    numbers["tokens at 224 px, patch 16"] = Estimate.exact(tokens)
    return Judged(judge(*rounded, must=[given(bool(equal), "equality"), given(tokens == 197, "length")]), numbers)


def c02() -> Judged:
    """Logits differ from timm's and from Eq. 1–8 in float64 numpy by at most 1e-5; every control by more."""
    checks = tables.evidence("checks")
    logits = checks[checks["check"] == "logits"].groupby("against")["difference"]
    largest, n_draws = logits.max(), logits.count()
    control = checks[checks["check"] == "deviation"].groupby("part")["difference"].max().min()
    must = [given(bool(largest[against] <= 1e-5), against) for against in ("timm", "equations")]
    numbers = {
        "largest logit difference to timm's class": Estimate.exact(largest["timm"]),
        "largest logit difference to Equations 1–8 in float64 numpy": Estimate.exact(largest["equations"]),
        "the same for the control that differs least": Estimate.exact(control),
    }
    note = f"random weights, not trained ones; {n_draws['timm']} and {n_draws['equations']} draws"
    return Judged(judge(given(bool(control > 1e-5), "control"), must=must), numbers, note)


# --- C03 to C07: scaling ----------------------------------------------------------------------------------------------
def by_size(runs: pd.DataFrame, first: str, second: str, column: str = "test_accuracy") -> dict[int, Estimate]:
    """Compute `lead` at each number of training images that both have, the fewest first."""
    both = runs.dropna(subset=column).groupby("n_train").filter(lambda each: {first, second} <= set(each["arm"]))
    return {int(n): lead(each, first, second, column) for n, each in both.groupby("n_train")}


@functools.cache
def data_runs() -> pd.DataFrame:
    """Read the runs of `data_scaling` as `lead` takes them."""
    runs = tables.transfers(tables.evidence("data_scaling"))
    return runs.assign(arm=runs["model"], n_test=table.preset("data_scaling", "full").base["n_test"])


def _in_measures(rulings: dict[str, Ruling], numbers: Numbers, notes: list[str]) -> Judged:
    """Take the verdict of the first measure, by its words, and tell those of the others."""
    (_, ruling), *others = rulings.items()
    return Judged(ruling, numbers, "; ".join(notes + [f"by {words} alone: {each.verdict}" for words, each in others]))


def c03() -> Judged:
    """In each pair, in transfer, the ResNet is ahead on the fewest images and the ViT on the most."""
    runs, numbers, notes = data_runs(), Numbers(), list[str]()
    conditions: dict[str, list[Condition]] = {words: [] for words in MEASURES.values()}
    for size, pair in PAIRS.items():
        if not set(pair) <= set(runs["model"]):
            continue
        for column, words in MEASURES.items():
            at = by_size(runs, *pair, column)
            numbers |= {f"{size}, ViT − ResNet at {n:,} images, {words}": at[n] for n in (min(at), max(at))}
            conditions[words] += [
                below(at[min(at)], margin=AHEAD, name=f"{size}: the ResNet's lead with few images"),
                above(at[max(at)], margin=AHEAD, name=f"{size}: the ViT's with many"),
            ]
        most = runs[runs["n_train"] == runs["n_train"].max()]
        real = [column for column in runs if column.partition(",")[0] in ("cifar10", "imagenette")]
        told = ", ".join(f"{column} {lead(most, *pair, column)}" for column in real)
        notes.append(f"{size}, ViT − ResNet on real photographs, most images (10-shot, or fine-tuned): {told}")
    return _in_measures({words: judge(*each) for words, each in conditions.items()}, numbers, notes)


def c04() -> Judged:
    """In transfer the larger ViT's lead grows from the fewest images to the most; it is behind on the fewest."""
    runs, pair = data_runs(), ("Lab-Ti/8", "Lab-Mu/8")
    numbers, notes, rulings, minus = Numbers(), list[str](), dict[str, Ruling](), " − ".join(pair)
    for column, words in MEASURES.items():
        if at := by_size(runs, *pair, column):
            wide = paired(runs, "arm", *pair, column, ["n_train"]).unstack("n_train")
            growth = Estimate.of(100 * (wide[max(at)] - wide[min(at)]).dropna(), "points")
            numbers |= {f"growth of {minus} from {min(at):,} to {max(at):,} images, {words}": growth}
            numbers |= {f"{minus} at {min(at):,} images, {words}": at[min(at)]}
            behind = below(at[min(at)], margin=AHEAD, name="behind with little data")
            rulings[words] = judge(behind, must=[above(growth, margin=AHEAD, name="growth")])
            notes.append(f"{minus}, {words}: " + ", ".join(f"{each.value:+.1f} at {n:,}" for n, each in at.items()))
    return _in_measures(rulings, numbers, notes)


def c05() -> Judged:
    """10-shot accuracy of the largest ViT trained at all sizes rises per tenfold data, and in the last step too."""
    runs, numbers, notes, rulings = data_runs(), Numbers(), list[str](), dict[str, Ruling]()
    n_sizes = runs.groupby("model")["n_train"].nunique()
    vit = [vit for vit, _ in PAIRS.values() if n_sizes.get(vit) == n_sizes.max()][-1]
    for column, words in MEASURES.items():
        wide = 100 * runs[runs["model"] == vit].pivot(index="seed", columns="n_train", values=column).dropna()
        slope = Estimate.of(np.polyfit(np.log10(wide.columns), wide.to_numpy().T, 1)[0], "points")
        step = Estimate.of(wide.iloc[:, -1] - wide.iloc[:, -2], "points")
        last = "from {:,} to {:,} images".format(*wide.columns[-2:])
        numbers |= {f"{vit} per tenfold data, {words}": slope, f"step {last}, {words}": step}
        rises = above(slope, margin=AHEAD, name="slope")
        rulings[words] = judge(above(step, margin=AHEAD, name="last step"), must=[rises])
        notes.append(f"{words}: " + ", ".join(f"{mean:.1f} % at {n:,} images" for n, mean in wide.mean().items()))
    return _in_measures(rulings, numbers, notes)


@functools.cache
def compute_runs() -> pd.DataFrame:
    """Read the runs of `compute_scaling`, and of `data_scaling` those on as many images, each with its family."""
    runs = tables.transfers(pd.concat([tables.evidence(name) for name in ("data_scaling", "compute_scaling")]))
    family = runs["model"].str[:2].map({"R+": "hybrid", "C+": "convolutional stem", "Bi": "ResNet"}).fillna("ViT")
    return runs.assign(family=family)[runs["n_train"] == runs["n_train"].max()]


def _compared(first: str, second: str, compare: Callable) -> np.ndarray:
    """Compare two families' accuracies in transfer over FLOPs in every seed that has both."""
    grouped = compute_runs().groupby(["family", "seed"])
    runs = {key: (rows["flops"], rows["transfer"]) for key, rows in grouped}
    seeds = [seed for name, seed in runs if name == first and (second, seed) in runs]
    return np.array([compare(runs[first, seed], runs[second, seed]) for seed in seeds])


def _gaps(first: tuple, second: tuple) -> np.ndarray:
    """Subtract the second frontier from the first at the least and at the most compute that both families spent."""
    ends = np.log10([max(each[0].min() for each in (first, second)), min(each[0].max() for each in (first, second))])
    one, other = frontier(*first), frontier(*second)
    return np.interp(ends, one[0], one[1]) - np.interp(ends, other[0], other[1])


def c06() -> Judged:
    """On the frontiers the hybrid leads at the least compute that both spent, and its lead declines to the most."""
    numbers, rulings, at = Numbers(), dict[str, Ruling](), "compute both spent"
    for name in ("hybrid", "convolutional stem"):  # of which the second is told, and decides nothing
        gaps = 100 * _compared(name, "ViT", _gaps)
        least, most, fall = (Estimate.of(each, "points") for each in (*gaps.T, gaps[:, 0] - gaps[:, 1]))
        numbers |= {f"{name} − ViT at the least {at}": least, f"{name} − ViT at the most {at}": most}
        leads = above(least, margin=AHEAD, name="lead")
        rulings[name] = judge(above(fall, margin=AHEAD, name="decline"), must=[leads])
    hybrid, stem = rulings.values()
    return Judged(hybrid, numbers, f"of a convolutional stem in its place: {stem.verdict}")


def _log_factors(vit: tuple, resnet: tuple) -> np.ndarray:
    """Compute log10 of the ResNet's compute over the ViT's at each of `ACCURACIES`; NaN where one does not reach it."""
    one, other = frontier(*resnet), frontier(*vit)
    needs = [np.interp(np.array(ACCURACIES), y, x, math.nan, math.nan) for x, y in (one, other)]
    return needs[0] - needs[1]


def c07() -> Judged:
    """At each accuracy that all seeds reach, the ResNet's compute over the ViT's is above 1, and above 2."""
    logs, numbers, over_one, over_two = _compared("ViT", "ResNet", _log_factors), Numbers(), [], []
    for accuracy, each in zip(ACCURACIES, logs.T, strict=True):
        if np.isfinite(each).all():
            mean = Estimate.of(each)
            numbers[f"compute of ResNet over that of ViT for {accuracy:.0%}"] = as_factor(each)
            over_one.append(above(mean))
            over_two.append(above(mean, math.log10(2)))
    return Judged(judge(all_of(*over_two, name="above 2"), must=[all_of(*over_one, name="above 1")]), numbers)


# --- C08, C21: transfer -----------------------------------------------------------------------------------------------
def c08() -> Judged:
    """Fine-tuned at twice the side, the ViT is ahead of pre-training's side; at 1.5 times it is not behind."""
    finals, numbers = tables.finals(tables.evidence("transfer")), {}
    for words, source, model in (
        ("ViT's", "imagenette", "Lab-Ti/8"),
        ("BiT's", "imagenette", "BiT-Lab-Ti/8"),
        ("from the world, ViT's", "world-300", "Lab-Ti/8"),
    ):
        rows = tables.of_pair(finals[finals["model"] == model], source, "imagenette")
        for arm in ("2x", "1.5x"):
            gain = Estimate.of(100 * paired(rows, "arm", arm, "1x"), "points")
            numbers[f"{words} accuracy at {arm} the resolution − at 1x"] = gain
    twice, between, *_ = numbers.values()
    return Judged(judge(above(between, -AHEAD, name="no loss between"), must=[above(twice, name="gain")]), numbers)


def c21() -> Judged:
    """After two epochs on every target the ViT has above 90 % of its final accuracy, and no smaller share than BiT."""
    curves, numbers, shares, gaps = tables.evaluations(tables.evidence("transfer")), Numbers(), [], []
    second = curves[(curves["epoch"] == 2) & (curves["arm"] == "1x") & (curves["source"] != "scratch")]
    for (source, target), rows in second.groupby(["source", "target"]):
        share = Estimate.of(100 * rows.loc[rows["model"] == "Lab-Ti/8", "share"], "%")
        gap = Estimate.of(100 * paired(rows, "model", "Lab-Ti/8", "BiT-Lab-Ti/8", "share"), "points")
        numbers |= {f"{source} → {target}, share after 2 epochs": share, f"{source} → {target}, ViT − BiT": gap}
        shares.append(above(share, 90))
        gaps.append(above(gap, -AHEAD))
    ruling = judge(all_of(*shares, name="few epochs"), all_of(*gaps, name="no slower than BiT"))
    return Judged(ruling, numbers)


# --- C10 to C14, C20: insides and speed -------------------------------------------------------------------------------
def c10() -> Judged:
    """Rank correlation of similarity with nearness and both excesses are above all controls, the former above 0.3."""
    rows, numbers, conditions = tables.evidence("local_heads"), {}, []
    whole = measure.position_trainings(rows[(rows["n_train"] == 9_469) & (rows["objective"] == "masked")])
    for name, mine in whole.groupby("measure", sort=False):
        of, least = ("cosine similarity", -1.0)
        if name == "rank correlation":
            of, least = "similarity with nearness", 0.3  # by convention a medium correlation
        numbers[f"{name} of {of}"] = number = Estimate.of(mine["value"], counted="trainings")
        conditions.append(above(number, max(least, mine["control_high"].max()), name=name))
    return Judged(judge(*conditions), numbers)


def c11() -> Judged:
    """Low-frequency share and explained variance of the first components are above all those before the trainings."""
    rows, numbers, conditions = tables.evidence("learnt_filters"), Numbers(), list[Condition]()
    first, last = (rows[rows["samples"] == end(rows["samples"])] for end in (min, max))
    measured = {"low_frequency": "low-frequency share", "explained": "explained variance"}
    limits = (white_noise_share((8, 8)), 0.0)  # of its patches
    for (column, words), limit in zip(measured.items(), limits, strict=True):
        numbers[f"{words} of the first components"] = number = Estimate.of(last[column].dropna(), counted="trainings")
        conditions.append(above(number, max(first[column].max(), limit), name=words))
    return Judged(judge(*conditions), numbers)


def c12() -> Judged:
    """Distance rises with depth (Spearman), more than untrained; heads of block 1 vary more than the last's."""
    rows = tables.evidence("local_heads")
    rows = rows[(rows["kind"] == "head") & (rows["n_train"] == 9_469) & (rows["objective"] == "masked")]
    ends = rows["samples"].map({0: "untrained", rows["samples"].max(): "trained"})  # of the others NaN: no group
    words = {
        "trend": "Spearman correlation of attention distance with depth",
        "trend − untrained": "that correlation minus what it was before the training",
        "spread, first": "longest minus shortest head of block 1",
        "spread, first − last": "that spread minus the last block's",
        "spread, first − untrained": "that spread minus what it was before the training",
    }
    found = measure.contrasts(rows.assign(model=ends, model_seed=0, image=rows["seed"]))
    numbers = [Estimate.of(found[name], "px of 80" * ("spread" in name), "trainings") for name in words]
    growth = all_of(*(above(each, margin=0.1) for each in numbers[:2]), name="growth")
    spread = all_of(*(above(each, margin=0.8) for each in numbers[3:]), name="variety")  # a tenth of a patch
    return Judged(judge(growth, spread), dict(zip(words.values(), numbers, strict=True)))


def c13() -> Judged:
    """Heads of the lowest third of the blocks attend farther in hybrids, the class token at distance 0 and left out."""
    rows, numbers = tables.low_heads(), Numbers()
    means = rows.groupby(["arm", "seed"])[["distance_px", "patches_px", "local"]].mean()
    for column, words in (("distance_px", "class token at distance 0"), ("patches_px", "among patches")):
        far = means[column].unstack("arm").dropna()
        name = f"distance in the lowest third of the blocks, hybrid − ViT, {words}"
        numbers[name] = Estimate.of(far["hybrid"] - far["ViT"], "px of 80", "trainings")
    local = means["local"].groupby("arm").mean()
    note = f"trained alike by masked prediction; local heads: hybrid {local['hybrid']:.0%}, ViT {local['ViT']:.0%}"
    return Judged(judge(*(above(each, margin=0.8) for each in numbers.values())), numbers, note)  # a tenth of a patch


def c14() -> Judged:
    """Rollout's mass on the object exceeds its area, an untrained model's excess, and that with another mask."""
    pairs = measure.per_image(tables.evidence("rollout"))
    own, last = (pairs[pairs["method"] == method].set_index("image") for method in ("rollout", "last block"))
    shares = {
        "rollout mass on the object minus its area": own["trained"],
        "the same, minus untrained models'": own["trained"] - own["untrained"],
        "the same, minus that with another image's mask": own["trained"] - own["shuffled"],
        "the same, minus that of the last block's attention": own["trained"] - last["trained"],
        "pointing game: hits minus chance": own["trained_hit"],
    }
    numbers = {name: Estimate.of(100 * each, "points", "images") for name, each in shares.items()}
    asked = zip(numbers.values(), ("the area", "untrained", "with another mask"), strict=False)
    first, *others = (above(each, margin=AHEAD, name=f"more than {name}") for each, name in asked)
    return Judged(judge(*others, must=[first, any_of(*others, name="either")]), numbers)


def c20() -> Judged:
    """The ViT's images per second are within 1.5 × of the ResNet's at every size; its largest batch is larger."""
    timings, (vit, resnet) = tables.evidence("speed"), ("Lab-Ti/8", "BiT-Lab-Ti/8")
    speeds, batches = (timings[timings["kind"] == kind] for kind in ("speed", "batch"))
    rate = speeds.pivot(index=["round", "image_size"], columns="model", values="images_per_second")
    ratio = np.log10(rate[vit] / rate[resnet]).unstack()  # [rounds, input sizes]
    batch = batches.pivot(index="image_size", columns="model", values="largest_batch")
    memory = batch[vit] / batch[resnet]
    close = [within(Estimate.of(ratio[px], counted="rounds"), math.log10(1.5)) for px in ratio]
    metric = "ViT over ResNet, geometric mean over input sizes"
    numbers = {f"images per second, {metric}": as_factor(ratio.mean(axis=1), "rounds")}
    numbers[f"largest batch, {metric}"] = Estimate.exact(round(float(10 ** np.log10(memory).mean()), 2), "×")
    by_px = ", ".join(f"{each:.2f} at {px} px" for px, each in (10 ** ratio.mean()).items())
    ruling = judge(all_of(*close, name="speed"), given(bool((memory > 1).all()), "memory"))
    return Judged(ruling, numbers, f"this processor's; the paper's is not testable here; images per second: {by_px}")


# --- C09, C15 to C19, L01, L02: design choices and objectives ---------------------------------------------------------
def c09() -> Judged:
    """1-D is ahead of none in every task; other kinds equal 1-D, and other places equal the stem."""
    runs = pd.concat([tables.evidence(name) for name in ("longer_positions", "position_variants")], ignore_index=True)
    return positions_rule(tables.chosen(runs, ("task", "arm", "steps")))


def positions_rule(runs: pd.DataFrame) -> Judged:
    """Judge by C09's rule runs with one row a task, arm, length and seed, by the longest trainings of both arms."""
    over_none, kinds, places = Numbers(), Numbers(), Numbers()
    base = "1-D, stem"

    def last(rows: pd.DataFrame, arm: str, other: str) -> Estimate:
        lengths = rows[rows["arm"].isin((arm, other))].groupby("steps")["arm"].nunique()
        return lead(rows[rows["steps"] == lengths[lengths == 2].index.max()], arm, other)

    for task, rows in runs.groupby("task", sort=False):
        over_none[f"1-D − none, {task}"] = last(rows, base, "none")
        kinds |= {f"{arm.partition(',')[0]} − 1-D, {task}": last(rows, arm, base) for arm in ("2-D, stem", "relative")}
        for kind, place in itertools.product(("1-D", "2-D"), ("every block", "shared")):
            places[f"{kind}, {place} − stem, {task}"] = last(rows, f"{kind}, {place}", f"{kind}, stem")
    ruling = judge(
        all_of(*(within(each, EQUAL) for each in kinds.values()), name="kinds are equal"),
        all_of(*(within(each, EQUAL) for each in places.values()), name="places are equal"),
        must=[all_of(*(above(each, margin=AHEAD) for each in over_none.values()), name="1-D is ahead of none")],
    )
    return Judged(ruling, over_none | kinds | places)


def c15() -> Judged:
    """Masked prediction is ahead of training from scratch for as long, and labels of the same images ahead of it."""
    finals, masked = tables.masked_finals(tables.evidence("masked_pretraining")), "masked, mean-colour"
    pairs = {"masked − scratch, 230,400 samples each": ("masked, 2,100 steps", "scratch, 3,600 steps")}
    pairs |= {f"labels − masked, both of {source}": (source, f"masked on {source}") for source in ("cifar10", "world")}
    pairs["masked − scratch, 134,400 samples each"] = masked, "scratch, as long"
    alike = {"masked": masked} | {name: name for name in ("masked on pink noise", "masked on white noise")}
    pairs |= {f"{name} − scratch, fine-tuned alike": (arm, "scratch") for name, arm in alike.items()}
    numbers = {name: Estimate.of(100 * paired(finals, "arm", *pair), "points") for name, pair in pairs.items()}
    over, under, *_ = numbers.values()
    better = above(over, margin=AHEAD, name="better than scratch")
    return Judged(judge(better, above(under, margin=AHEAD, name="below supervised")), numbers)


def c16() -> Judged:
    """Class token − GAP, each at its best learning rate, is none after the longest trainings."""
    by_length = reversed(list(tables.evidence("head_rates").groupby("steps")))
    leads = {steps: lead(tables.chosen(rows), "class token", "GAP") for steps, rows in by_length}
    numbers = {f"class token − GAP, each at its best, {steps:,} steps": each for steps, each in leads.items()}
    return Judged(judge(within(leads[max(leads)], EQUAL, name="equal")), numbers)


def c17() -> Judged:
    """Of every ResNet, Adam − SGD after fine-tuning, from filters as large as fresh ones, is above −1 point."""
    keys = ["model", "arm", "kernels", "seed"]  # averaged over targets, as Table 7's last line
    averaged = tables.evidence("resnet_optimizers").groupby(keys, as_index=False).mean(numeric_only=True)
    trained, rescaled = (averaged[averaged["kernels"] == kernels] for kernels in ("trained", "rescaled"))
    conditions, numbers = list[Condition](), Numbers()
    for model in averaged["model"].unique():
        name, pair = model.replace("BiT-Lab", "ResNet"), (f"{model}, adam", f"{model}, sgd")
        after = numbers[f"Adam − SGD, {name}"] = lead(rescaled, *pair, "fine_tuned")
        numbers[f"the same with filters as trained, {name}"] = lead(trained, *pair, "fine_tuned")
        numbers[f"the same before fine-tuning, {name}"] = lead(trained, *pair)
        conditions.append(above(after, -AHEAD, name=f"{name}: Adam is no worse"))
    return Judged(judge(*conditions), numbers)


def c18() -> Judged:
    """Depth's slope is above each other dimension's, width's below each other's, and smaller patches help."""
    runs = tables.evidence("vit_shapes")
    wide = tables.slopes(runs).pivot(index="seed", columns="dimension", values="slope")
    one = ["depth", "width", "MLP width", "patch size"]
    numbers = {f"slope along {name}": Estimate.of(wide[name].dropna(), "points a doubling") for name in (*one, "all")}
    parameters = runs.groupby("dimension")["parameters"].first()
    fewer = Estimate.exact(int(parameters["patch size"] - parameters["base"]))
    depth, width = (
        [Estimate.of((wide[name] - wide[other]).dropna(), "points") for other in one if other != name]
        for name in ("depth", "width")
    )
    ruling = judge(
        all_of(*map(above, depth), name="depth is best"),
        all_of(*map(below, width), name="width is least"),
        above(numbers["slope along patch size"], name="smaller patches help"),
    )
    return Judged(ruling, numbers | {"parameters, smaller patches − base": fewer})


def c19() -> Judged:
    """Axial attention is ahead of full attention of the same depth, and costs more FLOPs."""
    runs = tables.evidence("axial_attention")
    numbers = {f"axial − {arm}": lead(runs, "axial", arm) for arm in runs["arm"].unique() if arm != "axial"}
    flops = runs.groupby("arm")["flops"].first()
    ratio = round(flops["axial"] / flops["full, same depth"], 3)
    gain = above(numbers["axial − full, same depth"], margin=AHEAD, name="more accurate")
    numbers["FLOPs, axial / full of the same depth"] = Estimate.exact(ratio)
    return Judged(judge(gain, given(bool(ratio > 1), "costs more")), numbers)


def l01() -> Judged:
    """Of 300 and of 1,000 photographs with labels, the share of local heads in the lower blocks is below 5 %."""
    shares, numbers = tables.low_shares(tables.evidence("local_heads")), {}
    for n in (300, 1_000):
        local = shares.loc[(shares["objective"] == "labels") & (shares["n_train"] == n), "local"]
        numbers[f"local heads in the lower blocks, labels of {n:,} photographs"] = Estimate.of(100 * local, "%")
    return Judged(judge(all_of(*(below(each, 5.0) for each in numbers.values()))), numbers)


def l02() -> Judged:
    """Masked prediction makes more heads local than labels, on each number of photographs."""
    shares = tables.low_shares(tables.evidence("local_heads"))
    gaps = 100 * paired(shares, "objective", "masked", "labels", "local", at=["n_train"])
    found = {f"{n:,} photographs": Estimate.of(each, "points") for n, each in gaps.groupby(level="n_train")}
    ruling = judge(*(above(each, margin=5.0, name=name) for name, each in found.items()))
    return Judged(ruling, {f"masked − labels, {name}": each for name, each in found.items()})
