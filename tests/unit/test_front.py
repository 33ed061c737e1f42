"""What the front page says of the results, on results made by hand: counts, one row a claim, every number."""

import hashlib

import pytest

from vitlab import ledger, paths
from vitlab.ledger import report
from vitlab.ledger.claims import ALL, CLAIMS, LATER
from vitlab.publish import front


def entry(claim, verdict="reproduced", metric="metric", value=0.5, interval=None, n=3, **others):
    plain = {"unit": "", "counted": "seeds", "paper": "", "note": "", "reason": "", "advice": ""}
    number = {"claim": claim, "metric": metric, "value": value, "interval": interval, "n": n}
    return {**plain, **number, "verdict": verdict, **others}


def made(**entries):
    """Results as they are read: notebook → result."""
    return {f"0{number}_{name}": {"results": found} for number, (name, found) in enumerate(entries.items(), 1)}


HALF = made(
    vit=[
        entry("C01", "partly reproduced", "parameters of ViT-B/16", 86567656, n=1, counted="", paper="86M"),
        entry("C01", "partly reproduced", "tokens", 197, n=1, counted="", paper="86M"),
    ],
    scaling=[
        entry("C03", "inconclusive", "ViT − ResNet at 1,000 images, full", -6.7833, [-15.46, 1.885], unit="points"),
        entry("C03", "inconclusive", "ViT − ResNet at 300 images", 4.4, [-1.6, 10.4], unit="points"),
        entry("C04", "not reproduced"),
        entry("C20", "partly reproduced", "images per second, ViT over ResNet, geometric mean over input sizes"),
    ],
    distance=[entry("C12", value=0.867, interval=[0.848, 0.887], n=128, counted="images", note="one model")],
)


def test_claims_are_counted_by_verdict_not_numbers():
    words = front.findings(HALF)
    assert words == (
        "Of 21 claims, 1 is reproduced here, 2 are partly reproduced and 1 is not reproduced; "
        "17 are still open: 1 inconclusive, 16 not yet measured."
    )


def test_verdicts_that_no_claim_has_are_not_counted_among_the_open_ones():
    open_ones = made(a=[entry(claim, "not testable at this scale") for claim in CLAIMS])
    assert front.findings(open_ones).endswith("; 21 are not testable at this scale.")
    assert front.findings(made(a=[entry(claim) for claim in CLAIMS])) == (
        "Of 21 claims, 21 are reproduced here, 0 are partly reproduced and 0 are not reproduced; none is open."
    )


def test_a_claim_whose_numbers_have_different_verdicts_is_counted_once_and_shows_both():
    mixed = made(a=[entry("C10"), entry("C10", "inconclusive")], b=[entry("C11")])
    assert "1 is reproduced here" in front.findings(mixed)
    assert "21 claims" in front.findings(mixed) and front.findings(mixed).endswith("1 with different verdicts.")
    claim = row(front.claims_table(mixed), "C10")
    assert claim.endswith("| reproduced; inconclusive | – | [01](notebooks/01_a.ipynb) |")


def row(table, claim):
    (found,) = (line for line in table.splitlines() if line.startswith(f"| {claim} "))
    return found


def test_a_row_has_the_first_number_of_its_claim():
    table = front.claims_table(HALF)
    assert len(table.splitlines()) == 2 + len(ALL)
    assert row(table, "C01") == (
        "| C01 ViT's parameters and sequence length | parameters of ViT-B/16: 86,567,656 | 86M | partly reproduced "
        "| – | [01](notebooks/01_vit.ipynb) |"
    )
    words = "ViT − ResNet at 1,000 images, full: −6.8 points [−15.5, 1.9], n = 3 seeds"
    assert f"| {words} | – | inconclusive | – | [02](notebooks/02_scaling.ipynb) |" in row(table, "C03")
    assert "0.867 [0.848, 0.887], n = 128 images" in row(table, "C12")
    assert "| images per second, ViT over ResNet: 0.5, n = 3 seeds |" in row(table, "C20")


def test_a_claim_without_a_result_has_a_row_too():
    assert row(front.claims_table(HALF), "C13") == (
        "| C13 hybrids attend less locally | – | – | not yet | – | [08](notebooks/08_attention_distance.ipynb) |"
    )


def test_every_claim_has_a_notebook_before_it_has_a_result():
    assert "| – |\n" not in front.claims_table({}) + "\n"
    assert [line.split(" | ")[3] for line in front.claims_table({}).splitlines()[2:]] == ["not yet"] * len(ALL)


@pytest.mark.parametrize(
    ("metric", "short"),
    [
        ("tokens", "tokens"),
        ("ViT − ResNet at 16,000 images, full", "ViT − ResNet at 16,000 images, full"),
        ("images per second, ViT over ResNet, geometric mean over sizes", "images per second, ViT over ResNet"),
        ("a first part that is alone longer than fifty-four letters, more", "a first part that is alone longer than "),
    ],
)
def test_a_metric_is_cut_at_a_comma(metric, short):
    assert front.short_metric(metric).startswith(short) and "more" not in front.short_metric(metric)


def test_what_marks_a_number_of_the_larger_runs_is_never_cut():
    results = report.read_results(paths.reference_dir("quick"))[0]
    metrics = {entry["metric"] for result in results.values() for entry in result["results"]}
    marked = {metric for metric in metrics if "full" in metric.split(", ")}
    assert marked == {metric for metric in metrics if "full" in front.short_metric(metric).split(", ")} != set()


def test_claims_of_later_work_have_rows_and_are_not_counted_among_the_papers():
    results = made(a=[entry(claim) for claim in LATER])
    assert front.findings(results) == front.findings({})
    assert front.claims_table(results).splitlines()[-1].startswith(f"| {list(LATER)[-1]} ")
    assert f"## {list(LATER)[0]} · " in front.ledger_page(results)


def test_the_ledger_has_every_number_and_each_statement_once():
    page = front.ledger_page(HALF)
    assert all(page.count(claim.statement) == 1 for claim in ALL.values())
    assert (
        "| tokens | 197 |" in page and "| ViT − ResNet at 300 images | +4.4 points [−1.6, 10.4], n = 3 seeds |" in page
    )
    section = page.split("## C12")[1].split("## C13")[0]
    assert "Verdict: **reproduced**. How it was done: one model." in section
    assert "[notebook 03](../notebooks/03_distance.ipynb)" in section
    assert "not yet measured" in page.split("## C13")[1].split("## C14")[0]


def test_a_bar_in_a_metric_does_not_end_its_cell():
    page = front.ledger_page(made(a=[entry("C11", metric="|cosine|")]))
    assert "| \\|cosine\\| | 0.5, n = 3 seeds |" in page


def test_every_claim_has_a_short_form_of_at_most_six_words():
    for claim in ALL.values():
        assert 1 <= len(claim.short.split()) <= 6 and claim.short[-1] not in ".,;:", claim.id
    assert len({claim.short for claim in ALL.values()}) == len(ALL)


def test_the_picture_is_what_its_record_says_and_small():
    record = paths.read_json(front.HERO.with_suffix(".json"))
    content = front.HERO.read_bytes()
    assert hashlib.sha256(content).hexdigest() == record["sha256"] and len(content) <= 300_000
    assert [weights["name"] for weights in record["weights"]] == ["lab", "vit_tiny_patch16_224"]
    assert all(len(weights["sha256"]) == 16 and weights["about"] for weights in record["weights"])
    assert record["alt"] and record["caption"] and record["provenance"]["code_hash"]


def test_the_picture_has_the_models_that_the_notebooks_show():
    ours, real = paths.read_json(front.HERO.with_suffix(".json"))["weights"]
    reference = paths.read_json(paths.reference_dir("imagenet") / "06_embedding_filters" / "result.json")
    assert real["sha256"] == reference["weights"]["sha256"]
    from vitlab.publish.imagenet import what

    assert ours["sha256"] == what("lab")["sha256"], "run: python -m vitlab.publish hero --weights NAME@FILE"


def test_one_command_writes_the_pages_and_repeats_itself(tmp_path):
    blank = "".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in ("hero", "findings"))
    (tmp_path / "docs" / "site").mkdir(parents=True)
    tables = "".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in ("ledger", "models"))
    (tmp_path / "README.md").write_text(f"# A\n{blank}{tables}")
    (tmp_path / "docs" / "site" / "index.md").write_text(f"# B\n{blank}")
    pages = front.write(tmp_path)
    assert [page.relative_to(tmp_path).as_posix() for page in pages] == list(front.PAGES)
    first = [page.read_text(encoding="utf-8") for page in pages]
    front.write(tmp_path)
    assert [page.read_text(encoding="utf-8") for page in pages] == first
    results = report.read_results(paths.reference_dir("quick"))[0]
    twice = front.drawn_twice()
    assert all(front.headline(results, twice) in " ".join(text.split()) for text in first[:2])
    assert front.claims_table(results, twice) in first[0]
    assert first[2] == front.ledger_page(results, twice) and ledger.VERDICTS[0] in first[2]
