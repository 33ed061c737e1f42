"""Notebook 03 judges by the committed runs of `full` where they are there, and by its live run where they are not."""

import json

import matplotlib.pyplot as plt
import nbformat
import pytest
from IPython.display import display
from matplotlib.figure import Figure

from vitlab import notebooks
from vitlab.experiments import transfer, transfer_runs
from vitlab.ledger import published
from vitlab.sweep import results

pytestmark = pytest.mark.slow

PLANNED = len(transfer.planned_runs("full"))
(NOTEBOOK,) = (path for path in notebooks.all_notebooks() if path.stem == "03_transfer")


def made_up(config: dict) -> dict:
    """A run of `full` in which the ViT gains 2 and 5 points at the larger sides, and is at 95 % after two epochs."""
    gains, bit = {"1.5x": 0.02, "2x": 0.05, "scratch": -0.2}, config["model"].startswith("BiT")
    rows = [{"kind": "pretraining", "test_accuracy": 0.5, "seconds": 1.0}]
    for target, arm, side, (rate,) in transfer_runs.finetunings(config):
        final = 0.5 + 0.001 * (config["seed"] % 3) + gains.get(arm, 0.0) * (1 + 0.01 * config["seed"])
        epochs = range(config["epochs"] + 1) if side == config["image_size"] else (0, config["epochs"])
        for epoch in epochs:
            share = {0: 0.2, 1: 0.5, 2: 0.7 if bit else 0.95}.get(epoch, 1.0)
            named = {"target": target, "arm": arm, "side": side, "rate": rate, "epoch": epoch}
            rows.append({"kind": "evaluation", **named, "test_accuracy": share * final, "seconds": 1.0})
    return results.result(transfer_runs.run_one, config, rows, 1.0)


@pytest.fixture(scope="module")
def runs_of_smoke(tmp_path_factory):
    """A figures folder for all tests here: the live runs are made once."""
    return tmp_path_factory.mktemp("figures")


@pytest.fixture
def executed(monkeypatch, tmp_path, runs_of_smoke):
    """Executes the notebook at smoke, up to its exercises, beside some runs of full; returns its result."""
    monkeypatch.setenv("VITLAB_FIGURES", str(runs_of_smoke))
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / preset)
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: path.write_bytes(b""))  # half the time

    def execute(committed: list[dict]) -> dict:
        if committed:
            finished = {f"{i}.json": made_up(config) for i, config in enumerate(committed)}
            published.write("transfer", "full", finished, len(transfer.planned_runs("full")))
        names: dict = {"display": display}  # IPython defines it in every notebook
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
            if cell.cell_type == "markdown" and "## Exercises" in cell.source:
                break
            if cell.cell_type == "code":
                exec(cell.source.replace('PRESET = "quick"', 'PRESET = "smoke"'), names)
        plt.close("all")
        return json.loads((runs_of_smoke / "smoke" / "03_transfer" / "result.json").read_text())

    return execute


def of_claim(result: dict, claim: str) -> dict[str, dict]:
    return {entry["metric"]: entry for entry in result["results"] if entry["claim"] == claim}


def test_without_committed_runs_the_live_run_decides_and_says_so(executed, capsys):
    result = executed([])
    assert "transfer: nothing is published yet" in capsys.readouterr().out
    assert not {"full", "full_sources", "full_epochs"} & set(result["figures"])
    for claim in ("C08", "C21"):
        found = of_claim(result, claim)
        assert found and not [metric for metric in found if metric.endswith("full")]
        assert {entry["verdict"] for entry in found.values()} == {"inconclusive"}  # two seeds decide nothing


def test_all_committed_runs_decide_and_the_live_ones_are_beside_them(executed):
    result = executed(transfer.planned_runs("full"))
    assert {"full", "full_sources", "full_epochs", "resolution", "epochs"} <= set(result["figures"])
    found = of_claim(result, "C08")
    twice = found["ViT's accuracy at 2x the resolution − at 1x, full"]
    n = transfer.CONFIGS["full"].n_seeds
    gain = 5 * (1 + 0.01 * (n - 1) / 2)  # of seed k: 5 points and a hundredth of it k times
    assert twice["value"] == pytest.approx(gain) and twice["n"] == n and twice["verdict"] == "reproduced"
    assert found["ViT's accuracy at 2x the resolution − at 1x"]["n"] == 2
    assert "BiT's accuracy at 2x the resolution − at 1x, full" in found
    assert f"all {PLANNED} runs" in twice["note"] and "by this run alone: inconclusive" in twice["note"]
    shares = of_claim(result, "C21")
    of_vit = shares["share of ViT's final accuracy reached after 2 epochs, full"]
    assert of_vit["value"] == pytest.approx(95) and of_vit["verdict"] == "reproduced"


def test_a_few_committed_runs_are_counted_and_decide_nothing_alone(executed):
    planned = transfer.planned_runs("full")
    result = executed([run for run in planned if run["seed"] < 2][:6])
    found = of_claim(result, "C08")
    twice = found["ViT's accuracy at 2x the resolution − at 1x, full"]
    assert twice["n"] == 2 and twice["verdict"] == "inconclusive" and f"6 of {PLANNED} planned runs" in twice["note"]


def test_committed_runs_that_cannot_be_judged_leave_the_live_run_to_decide(executed):
    planned = transfer.planned_runs("full")
    result = executed([run for run in planned if run["source"] == "world-300"][:2])
    found = of_claim(result, "C08")
    assert "ViT's accuracy at 2x the resolution − at 1x, full" not in found
    assert f"2 of {PLANNED}" not in found["ViT's accuracy at 2x the resolution − at 1x"]["note"]
