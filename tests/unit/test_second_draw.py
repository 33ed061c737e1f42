"""A second draw: other seeds at what the first has chosen, an archive of its own, and verdicts beside the first's."""

import dataclasses
import functools
import importlib
import json

import pandas as pd
import pytest

from vitlab import ledger, paths
from vitlab.experiments import head_rates, local_heads, scaling, second_draw
from vitlab.ledger import claims, published, report, second, verdicts
from vitlab.ledger.entries import fields
from vitlab.ledger.study import TOGETHER
from vitlab.publish import __main__ as publish
from vitlab.publish import front
from vitlab.publish import second as publishing
from vitlab.sweep import committed, results, runner


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where results of this machine and the references lie, both empty."""
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    return tmp_path


def made_up(config):
    """Rows of a run of head_rates that learned best at the larger rate, but for GAP after two steps."""
    smaller = config["arm"] == "GAP" and config["steps"] == 2
    right = (config["learning_rate"] < 2e-3) == smaller
    return [{"validation_accuracy": 0.6 if right else 0.5, "test_accuracy": 0.5}]


@pytest.fixture
def first_draw(folders):
    runs = head_rates.planned_runs("smoke")
    packed = {f"{n}.json": results.result(made_up, run, made_up(run), 0.0) for n, run in enumerate(runs)}
    published.write("head_rates", "smoke", packed, len(runs))
    return folders


def test_the_second_draw_has_other_seeds_and_the_chosen_rates_alone(first_draw):
    runs = second_draw.planned_runs("head_rates", "smoke", seed=3)
    drawn = {(run["steps"], run["arm"], run["learning_rate"]) for run in runs}
    best, worse = 4e-3, 1e-3
    assert drawn == {
        (3, "class token", best),
        (3, "GAP", best),
        (2, "class token", best),
        (2, "GAP", worse),
    }
    assert {run["seed"] for run in runs} == {300, 301} and len(runs) == 8
    everything = head_rates.planned_runs("smoke", seed=3)
    assert all(run in everything for run in runs)


@pytest.mark.parametrize(
    ("study", "seed", "words"),
    [
        ("who_wins", 1, "who_wins has no second draw: choose among head_rates, "),
        ("head_rates", 0, "seed 0 is that of the first draw"),
        ("head_rates", 1, "no run of head_rates at smoke is committed"),
    ],
)
def test_what_cannot_be_drawn_again_is_said(folders, study, seed, words):
    with pytest.raises(ValueError, match=words):
        second_draw.planned_runs(study, "smoke", seed)


def test_a_first_draw_of_other_settings_than_are_planned_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(scaling, "real_sets", lambda: "letters")
    monkeypatch.setattr(committed, "names", set)  # as after a change of the code
    with pytest.raises(ValueError, match="is one of its first draw but for the seed: .* other real sets than letters"):
        second_draw.planned_runs("compute_scaling")


def test_every_study_of_a_second_draw_has_its_first_one_committed():
    for study in second_draw.STUDIES:
        assert committed.draws(study, "full")[:1] == [0], study


@pytest.mark.parametrize(
    ("study", "n_runs", "left_out"),
    [
        ("local_heads", 40, ("data", local_heads.CROPS)),  # 8 kinds of training on photographs, 5 seeds
        ("transfer", 18, ("source", "world-300")),  # 2 models, 9 seeds
        ("masked_pretraining", 15, ("arm", "masked, pixels")),  # 3 arms, 5 seeds
        ("data_scaling", 70, ("model", "R+Lab-Ti/16")),  # 4 models at 3 sizes, one of them at 2 more, 5 seeds
    ],
)
def test_runs_that_judge_no_claim_are_drawn_once_only(study, n_runs, left_out, monkeypatch):
    monkeypatch.setattr(scaling, "real_sets", lambda: "digits cifar10")  # on which the committed runs were evaluated
    drawn = second_draw.planned_runs(study)
    name, value = left_out
    assert len(drawn) == n_runs and value not in {run[name] for run in drawn}
    assert value in {run[name] for run in importlib.import_module(f"vitlab.experiments.{study}").planned_runs("full")}


def test_a_second_draw_is_published_in_an_archive_of_its_own(first_draw, capsys):
    before = committed.archive("head_rates", "smoke").read_bytes()
    assert publish.main(["runs", "head_rates", "--preset", "smoke", "--seed", "1"]) == 2
    assert "has no finished run" in capsys.readouterr().err
    planned = second_draw.planned_runs("head_rates", "smoke")
    table = runner.run_all(head_rates.run_one, planned[:3], runner.run_folder("second_draw", "smoke"), jobs=1)
    assert publish.main(["runs", "head_rates", "--preset", "smoke", "--seed", "1"]) == 0
    assert committed.archive("head_rates", "smoke").read_bytes() == before
    there = published.read("head_rates", "smoke", seed=1)
    assert str(there).startswith("head_rates at smoke: 3 of 8 planned runs of seed 1, 20")
    pd.testing.assert_frame_equal(there.table[table.columns], table)
    assert committed.draws("head_rates", "smoke") == [0, 1]
    assert sorted(set(second_draw.draw("head_rates", "smoke", jobs=1)["seed"])) == [100, 101]


def test_a_seed_that_was_not_drawn_shows_the_first_draw_and_says_so(first_draw, monkeypatch):
    read = published.read
    monkeypatch.setattr(published, "read", lambda study, seed=0: read(study, "smoke", seed))
    table, words = ledger.published_runs("head_rates", seed=5)
    assert set(table["seed"]) == {0, 1} and words.endswith(" (seed 0)")
    assert not ledger.published_runs("head_rates")[1].endswith(" (seed 0)")


# ---- verdicts of both draws ----


def entry(claim, verdict="reproduced", value=0.5):
    number = {"claim": claim, "metric": f"number of {claim}", "value": value, "interval": [0.4, 0.6], "n": 5}
    return number | {"verdict": verdict, "unit": "", "counted": "seeds", "paper": "", "note": ""}


def result(*entries, **others):
    made = {"schema": 1, "preset": "quick", "seed": 0, "parameters": {}, "results": list(entries), "figures": {}}
    return made | {"provenance": ledger.provenance()} | others


FIRST = {"08_a": result(entry("C12"), entry("C13"), entry("L01")), "11_b": result(entry("C19", "inconclusive"))}
ANEW = {second.ANEW: {"C12": "images", "C13": "images", "L01": "trainings", "C19": "trainings"}}
SECOND = {
    "08_a": result(entry("C12", value=0.55), entry("C13", "inconclusive"), entry("L01"), seed=1) | ANEW,
    "11_b": result(entry("C19"), seed=1) | ANEW,
}


def test_a_run_with_another_seed_is_no_second_draw_of_itself():
    assert second.drawn(SECOND, SECOND) == {}


def test_decided_claims_of_the_paper_are_counted_and_all_are_listed():
    twice = second.drawn(FIRST, SECOND)
    assert second.in_words(twice) == (
        "On a second draw, with other seeds, 1 of 2 decided verdicts are the same; "
        "C13 is reproduced, then inconclusive."
    )
    assert {claim: each.stands for claim, each in twice.items()} == {
        "C12": True,
        "C13": False,
        "C19": False,
        "L01": True,
    }
    assert second.rows(twice)[0] == {
        "claim": "C12",
        "verdict": "reproduced",
        "second draw": "reproduced",
        "number of the second draw": "number of C12: 0.55 [0.40, 0.60], n = 5 seeds",
        "drawn anew": "images",
        "all together": "–",
    }


@pytest.mark.parametrize("others", [{"preset": "smoke"}, {"parameters": {"weights": "mine"}}])
def test_a_draw_of_another_preset_or_of_other_weights_is_no_second_draw(others):
    assert list(second.drawn(FIRST, SECOND | {"08_a": SECOND["08_a"] | others})) == ["C19"]


def test_front_page_and_report_show_the_second_draw(tmp_path):
    twice = second.drawn(FIRST, SECOND)
    table = {line.split()[1]: line.split(" | ")[4] for line in front.claims_table(FIRST, twice).splitlines()[2:]}
    assert (table["C12"], table["C13"], table["C19"], table["C01"]) == ("the same", "inconclusive", "reproduced", "–")
    ours = {line.split()[1]: line.split(" | ")[1] for line in front.claims_table(FIRST, twice).splitlines()[2:]}
    assert ours["L01"] == f"number of L01, all draws: {twice['L01'].numbers[0].both}"
    once = {line.split()[1]: line.split(" | ")[1] for line in front.claims_table(FIRST).splitlines()[2:]}
    assert once["L01"] == "number of L01: 0.50 [0.40, 0.60], n = 5 seeds"
    page = front.ledger_page(FIRST, twice)
    assert "Second draw, of other images: **inconclusive**. number of C13: 0.50 [0.40, 0.60], n = 5 seeds." in page
    assert "Second draw" not in front.ledger_page(FIRST).split("## C01")[1]
    for folder, found in (("first", FIRST), ("second", SECOND)):
        for notebook, content in found.items():
            paths.write_json(tmp_path / folder / notebook / "result.json", content)
    text = report.build(tmp_path / "first", tmp_path / "none", "quick", again=tmp_path / "second")
    assert "## Second draw" in text and "| C13 | reproduced | inconclusive | number of C13: 0.50" in text
    assert "## Second draw" not in report.build(tmp_path / "first", tmp_path / "none", "quick")


def test_the_ledger_has_the_numbers_of_both_draws_and_of_all():
    twice = second.drawn(FIRST, SECOND)
    assert "| number of C12 | 0.50 [0.40, 0.60], n = 5 seeds | 0.55 " in front.ledger_page(FIRST, twice)
    # The same number in both, 0.5 ± 0.1 of five seeds: t of ten is 2.262 for 2.776, and the squares are over 9 for 8.
    both = twice["L01"].numbers[0].both
    assert both.half_width == pytest.approx(0.1 * 2.2622 / 2.7764 * (8 / 9) ** 0.5 / 2**0.5, rel=1e-4)
    assert f"| number of L01 | {twice['L01'].numbers[0].first} | {twice['L01'].numbers[0].second} | {both} |" in (
        front.ledger_page(FIRST, twice)
    )


def test_numbers_of_images_or_of_one_draw_have_none_of_all_draws():
    by_images = {"08_a": result(entry("C12") | {"counted": "images", "n": 128})}
    twice = second.drawn(by_images, {"08_a": by_images["08_a"] | {"seed": 1} | ANEW})
    assert twice["C12"].of_all("number of C12") is None is twice["C12"].of_all("another")
    assert second.spread_in_words(twice.values()) == ""


def test_numbers_that_differ_by_more_than_their_spread_are_counted():
    away = {"08_a": result(entry("C12", value=0.7) | {"interval": [0.65, 0.75]}, entry("L01"), seed=1) | ANEW}
    words = second.spread_in_words(second.drawn(FIRST, away).values())
    assert words.startswith("2 numbers of trainings were measured in both draws. In 1 of them the draws lie ")
    assert "by chance that is to be expected in 0, " in words
    page = front.ledger_page(FIRST, second.drawn(FIRST, away))
    assert "2 numbers of trainings were measured in both draws." in page.split("## C01")[0]


def of_full(*half_widths, **others):
    """The results of a draw of C16: numbers of full in points, of five seeds each, 10 with these half-widths."""
    numbers = [{"metric": f"lead {k}, full", "interval": [10 - w, 10 + w]} for k, w in enumerate(half_widths)]
    same = {"value": 10.0, "unit": "points"} | others
    return [entry("C16") | same | number for number in numbers]


def twice_of_full(*half_widths, **others):
    """The results of the first draw of C16, and what two alike say together."""
    first, anew = of_full(*half_widths, **others), {second.ANEW: {"C16": "trainings"}}
    results = {"11_a": result(*first)}
    return results, second.drawn(results, {"11_a": result(*first, seed=1) | anew})


def test_the_widest_interval_of_both_draws_says_what_one_point_would_take():
    # ±5 of five seeds is a spread of 5·√5 / 2.776 = 4.03 in a draw, 4.03·√(8/9) = 3.80 in both as one sample, whose
    # interval is ± 2.262·3.80 / √10 = 2.72. With 58 seeds it is 2.002·3.80 / √58 = 1.00.
    first, twice = twice_of_full(2.0, 5.0)
    words = "the widest interval of full over all draws is ±2.7 points (lead 1, n = 10 seeds); ±1 would take 58"
    assert second.precision_in_words(twice["C16"]) == words
    assert f"How precise: {words}." in front.ledger_page(first, twice)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({}, "every interval of full over all draws is within ±1 point"),
        ({"unit": "×"}, ""),
        ({"counted": "images"}, ""),
    ],
)
def test_narrow_intervals_are_said_to_be_and_other_numbers_are_not_asked(others, words):
    first, twice = twice_of_full(1.0, 0.5, **others)
    assert second.precision_in_words(twice["C16"]) == words
    assert ("How precise: " in front.ledger_page(first, twice)) == bool(words)


def test_a_number_that_was_judged_of_all_draws_is_that_one():
    full = {"metric": "share, full"}
    of_twenty = ledger.Estimate(0.51, 0.49, 0.53, 20)
    said = {"verdict": "inconclusive", "numbers": [named("share", of_twenty)]}
    first = {"11_b": result(entry("C19", "inconclusive") | full, entry("C19") | {"metric": "share"})}
    first = {"11_b": first["11_b"] | {TOGETHER: {"C19": said}}}
    drawn = second.drawn(first, {"11_b": result(entry("C19") | full, seed=1) | ANEW})["C19"]
    assert drawn.of_all("share, full") == of_twenty and drawn.of_all("share") is None


def test_numbers_of_all_draws_that_an_earlier_version_kept_as_text_are_passed_over():
    said = {"verdict": "reproduced", "numbers": [{"metric": "share", "number": "0.51 [0.49, 0.53], n = 20 seeds"}]}
    first = {**FIRST, "11_b": FIRST["11_b"] | {TOGETHER: {"C19": said}}}
    drawn = second.drawn(first, SECOND)["C19"]
    assert drawn.together == "reproduced" and drawn.first_of_all is None
    assert "**reproduced**" in front.ledger_page(first, {"C19": drawn})


def test_where_both_draws_agree_the_numbers_are_those_of_all_seeds_and_the_verdict_is_theirs():
    """±0.9 of 54 seeds, where the ten of both draws alone have ±2.7: the former is what the ledger says."""
    first, twice = twice_of_full(5.0)
    assert "±2.7 points (lead 0, n = 10 seeds)" in second.precision_in_words(twice["C16"])
    of_all = ledger.Estimate(10.2, 9.3, 11.1, 54, "points")
    said = {"verdict": "partly reproduced", "numbers": [named("lead 0", of_all)]}
    results = {"11_a": first["11_a"] | {TOGETHER: {"C16": said}}}
    twice = second.drawn(results, {"11_a": result(*of_full(5.0), seed=1) | {second.ANEW: {"C16": "trainings"}}})
    assert second.precision_in_words(twice["C16"]) == "every interval of full over all draws is within ±1 point"
    page, table = front.ledger_page(results, twice), front.claims_table(results, twice)
    assert f"| {of_all} |" in page and "judged as one" not in page
    assert f"| lead 0, all draws: {of_all} | – | reproduced | the same |" in table


# ---- publishing verdicts ----


@pytest.fixture
def ran(folders, monkeypatch):
    """A notebook that seems to have run with seed 1; what the check of its source was asked is returned."""
    run = paths.figures_dir() / "quick" / "08_attention_distance"
    asked = {}
    monkeypatch.setattr(publishing, "with_outputs", lambda source, notebook, **given: asked.update(given))
    paths.write_json(run / "result.json", result(entry("C12"), entry("C01"), entry("L01"), seed=1, table=[1]))
    (run / "notebook.ipynb").write_text("{}")
    return folders, run, asked


def test_claims_are_kept_whose_evidence_the_seed_draws_anew(ran):
    folders, _, asked = ran
    assert publish.main(["second", "08", "--seed", "1"]) == 0
    assert asked == {"PRESET": "quick", "SEED": 1}
    path = folders / "reference" / "second" / "08_attention_distance" / "result.json"
    kept = json.loads(path.read_text())
    # C01 counts parameters; L01 rests on runs of local_heads, which have no second draw.
    assert [each["claim"] for each in kept["results"]] == ["C12"] and "table" not in kept
    assert kept[second.ANEW] == {"C12": publishing.DRAWN["C12"].what}
    committed.write(committed.archive("local_heads", "full", seed=1), {"a.json": {}})
    assert publish.main(["second", "08", "--seed", "1"]) == 0
    assert list(json.loads(path.read_text())[second.ANEW]) == ["C12", "L01"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "1"], "name the notebooks"),
        (["08"], "with --seed the seed of the second draw, which is not 0"),
        (
            ["07", "--seed", "1"],
            "07_position_embeddings has not run to its end: vitlab run 07 --preset quick --set SEED=1",
        ),
        (["08", "--seed", "2"], "was run with SEED = 1: expected 2"),
    ],
)
def test_what_is_no_second_draw_is_refused(ran, capsys, arguments, words):
    assert publish.main(["second", *arguments]) == 2
    assert words in capsys.readouterr().err and not (ran[0] / "reference").exists()


def test_every_claim_says_what_a_second_draw_changes_or_has_nothing_to_draw():
    assert set(claims.ALL) - set(publishing.DRAWN) == {"C01", "C11"}
    assert {drawn.study for drawn in publishing.DRAWN.values() if drawn.study} <= set(second_draw.STUDIES)


def test_claims_that_runs_of_full_decide_name_their_study():
    """A claim of the reference has numbers of full if and only if a second draw of it needs a study's runs."""
    found = report.read_results(paths.reference_dir("quick"))[0]
    entries = [each for result in found.values() for each in result["results"]]
    by_full = {each["claim"] for each in entries if {"full", "over trainings"} & set(each["metric"].split(", "))}
    studied = {claim for claim, drawn in publishing.DRAWN.items() if drawn.study}
    assert studied - {"C06"} == by_full - {"C06"}  # hybrids of full have not been run


def test_what_is_committed_of_the_second_draw_is_of_another_seed_and_of_claims_that_it_draws():
    there, bad = report.read_results(paths.reference_dir(second.FOLDER))
    assert not bad
    for result in there.values():
        assert result["seed"] != 0 and not result["figures"]
        for claim in {each["claim"] for each in result["results"]}:
            assert result[second.ANEW][claim] == publishing.DRAWN[claim].what
            study = publishing.DRAWN[claim].study
            assert not study or result["seed"] in committed.draws(study, "full")


# ---- both draws judged as one ----


def test_all_draws_have_the_seeds_of_both_at_the_settings_that_both_have(first_draw, monkeypatch):
    monkeypatch.setattr(committed, "archive", functools.partial(_at_smoke, committed.archive))
    table, words = published.all_draws("head_rates")
    assert table.empty and words == "head_rates: no second draw is published yet"
    planned = second_draw.planned_runs("head_rates", "smoke")
    packed = {f"{n}.json": results.result(made_up, run, made_up(run), 0.0) for n, run in enumerate(planned)}
    published.write("head_rates", "smoke", packed, len(planned), seed=1)
    table, words = published.all_draws("head_rates")
    assert sorted(set(table["seed"])) == [0, 1, 100, 101]
    by = ["steps", "arm", "learning_rate"]
    assert set(table.groupby(by).size()) == {4} and len(table) == 2 * len(planned)
    assert words == "head_rates at full, runs whose settings every draw has: 8 of 16 (seed 0), 8 of 8 (seed 1)"


def test_all_draws_take_in_the_seeds_of_a_study_that_has_more(first_draw, monkeypatch):
    monkeypatch.setattr(committed, "archive", functools.partial(_at_smoke, committed.archive))
    planned = [run for run in second_draw.planned_runs("head_rates", "smoke") if run["seed"] == 100]  # every setting
    for study, draw, seeds in (("head_rates", 1, (100, 101)), ("more", 0, (200, 201, 202))):
        runs = [run | {"seed": seed} for run in planned for seed in seeds]
        packed = {f"{n}.json": results.result(made_up, run, made_up(run), 0.0) for n, run in enumerate(runs)}
        published.write(study, "smoke", packed, len(runs), seed=draw)
    two, words = published.all_draws("head_rates")
    table, more = published.all_draws("head_rates", "more")
    assert sorted(set(table["seed"])) == [0, 1, 100, 101, 200, 201, 202] and len(table) == len(two) + 3 * len(planned)
    assert more.startswith(f"{words}; more at smoke: all 12 runs, ")
    pd.testing.assert_frame_equal(published.all_draws("head_rates", "not published")[0], two)
    again, words = published.all_draws("head_rates", "more", "head_rates")  # of the last no run that is there
    pd.testing.assert_frame_equal(again.iloc[: len(table)], table)
    assert len(again) == len(table) + 8 and not again.duplicated(["steps", "arm", "learning_rate", "seed"]).any()
    assert words.startswith(f"{more}; head_rates at smoke: all 16 runs, ")


def named(metric, number):
    return {"metric": metric, **fields(number)}


LESS = ledger.Estimate(-10.0, -12.0, -8.0, 10, "points")


def _at_smoke(archive, study, preset, seed=0):
    return archive(study, "smoke", seed)


def test_all_draws_together_decide_where_two_differ():
    said = {"verdict": "partly reproduced", "numbers": [named("share", LESS)]}
    first = {**FIRST, "08_a": FIRST["08_a"] | {TOGETHER: {"C12": said, "C13": said}}}
    twice = second.drawn(first, SECOND)
    assert second.in_words(twice).endswith(" are the same; by the seeds of all draws, C13 is partly reproduced.")
    two = twice | {"C02": dataclasses.replace(twice["C13"], claim="C02")}
    assert second.in_words(two).endswith(
        " 1 of 3 decided verdicts are the same; by the seeds of all draws, C13 and C02 are partly reproduced."
    )
    one_each = twice | {"C02": dataclasses.replace(twice["C13"], claim="C02", together="reproduced")}
    assert second.in_words(one_each).endswith(
        "by the seeds of all draws, C13 is partly reproduced, and C02 is reproduced."
    )
    rows = {row["claim"]: row["all together"] for row in second.rows(twice)}
    assert rows == {"C12": "–", "C13": "partly reproduced", "C19": "–", "L01": "–"}
    page = front.ledger_page(first, twice)
    said = "judged as one: **partly reproduced**. share: −10.0 points [−12.0, −8.0], n = 10 seeds."
    assert page.count(f"Verdict of all draws, {said}") == 1
    open_still = twice | {"C13": dataclasses.replace(twice["C13"], advice="about 60 seeds")}
    advised = [entry | {"advice": "about 40 seeds"} for entry in first["08_a"]["results"]]
    sections = front.ledger_page(first | {"08_a": first["08_a"] | {"results": advised}}, open_still).split("\n## ")
    of_c13 = next(section for section in sections if section.startswith("C13"))
    assert f"{said} To decide it: about 60 seeds." in of_c13 and "about 40 seeds" not in of_c13
    table = front.claims_table(first, twice)
    assert "| partly reproduced | reproduced, then inconclusive |" in table
    assert "| share, all draws: −10.0 points [−12.0, −8.0], n = 10 seeds |" in table
    assert "1 is reproduced here, 1 is partly reproduced" in front.headline(first, twice)
    assert "2 are reproduced here, 0 are partly reproduced" in front.findings(first)


def test_all_draws_are_judged_by_the_notebook_of_the_first_alone(figures, monkeypatch, capsys):
    def numbers(n):
        """The first is the one that tables show, whatever the alphabet says."""
        return {"seeds": ledger.Estimate.exact(n), "a further one": ledger.Estimate.exact(7)}

    def rule(runs):
        return verdicts.judge(verdicts.given(True)), numbers(len(runs)), "at best"

    one, two = (pd.DataFrame(), "one"), (pd.DataFrame({"seed": [0, 100]}), "two")
    for seed, drawn in ((1, two), (0, one)):
        monkeypatch.setattr(published, "all_draws", lambda *_, drawn=drawn: drawn)
        begun = ledger.begin("11_b", "smoke", seed)
        ledger.conclude_together(begun, "C17", "vit", rule)
        assert TOGETHER not in begun.found and not (figures / "smoke").exists()
    monkeypatch.setattr(published, "all_draws", lambda *asked: {("vit", "of vit"): two}[asked])
    begun = ledger.begin("11_b", "smoke", 0)
    ledger.conclude_together(begun, "C17", "vit", rule, more=["of vit"])
    kept = json.loads((figures / "smoke" / "11_b" / "result.json").read_text())[TOGETHER]
    assert kept["C17"]["verdict"] == "reproduced" and kept["C17"]["note"] == "two: at best"
    assert kept["C17"]["numbers"] == [named(name, number) for name, number in numbers(2).items()]
    assert (
        "**C17, all draws together: reproduced.** Seeds: 2; a further one: 7. Two: at best." in capsys.readouterr().out
    )
    with pytest.raises(ValueError, match="claim C17 has no number of all draws together"):
        ledger.conclude_together(begun, "C17", "vit", lambda runs: (rule(runs)[0], {}, ""), ["of vit"])


def test_what_both_draws_leave_open_is_decided_by_all_draws_too():
    said = {"verdict": "reproduced", "numbers": [named("gain", ledger.Estimate(2.0, 1.0, 3.0, 20, "points"))]}
    open_twice = SECOND | {"11_b": result(entry("C19", "inconclusive"), seed=1) | ANEW}
    first = {**FIRST, "11_b": FIRST["11_b"] | {TOGETHER: {"C19": said}}}
    assert second.drawn(FIRST, open_twice)["C19"].together == ""
    twice = second.drawn(first, open_twice)
    assert twice["C19"].together == "reproduced" and not twice["C12"].together
    assert second.in_words(twice).endswith("inconclusive; by the seeds of all draws, C19 is reproduced.")
    assert "| reproduced | inconclusive, then inconclusive |" in front.claims_table(first, twice)
    assert "3 are reproduced here" in front.findings(first, twice)


def test_every_claim_that_two_draws_do_not_settle_is_judged_by_all_together():
    """Where the second draw is one of trainings: another measurement has no runs that could be judged together."""
    unsettled = [each for each in front.drawn_twice().values() if not each.stands or each.is_open]
    studied = [each for each in unsettled if publishing.DRAWN[each.claim].study]
    assert all(each.together for each in studied), [each.claim for each in studied if not each.together]
