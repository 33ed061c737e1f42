"""Experiments of notebooks 06 and 07: known answers from made-up weights, controls, intervals and resuming."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from vitlab.analysis.positions import position_similarity as similarity_map
from vitlab.experiments import embedding_filters as filters_experiment
from vitlab.experiments import position_similarity as positions_experiment
from vitlab.experiments.embedding_filters import embedding_filters, without_group
from vitlab.experiments.position_similarity import position_similarity, rings, shuffled_within
from vitlab.ledger.intervals import jackknife_interval
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig

EXPERIMENTS = [embedding_filters, position_similarity]
TINY = ViTConfig(image_size=48, patch_size=8, dim=64, depth=1, n_heads=1, mlp_dim=8, n_classes=2)


def saved(path: Path, filters: Tensor | None = None, pos: Tensor | None = None) -> str:
    """Weights file of a tiny ViT, with these filters [D 3 8 8] and patch embeddings [36 D] in it."""
    model = ViT(TINY, seed=7)
    with torch.no_grad():
        if filters is not None:
            model.patch_embed.proj.weight.copy_(filters)
        if pos is not None:
            model.pos_embed[0, 1:] = pos
    zoo.save(path, model, "Lab-Ti/8", {})
    return str(path)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    return saved(tmp_path / "plain.safetensors")


def smooth_filters() -> Tensor:
    """Random mixtures of few slow waves, with a trace of noise."""
    draw = torch.Generator().manual_seed(0)
    y, x = torch.arange(8)[:, None] / 8, torch.arange(8) / 8
    waves = torch.stack([torch.cos(torch.pi * (a * y + b * x)) for a in range(2) for b in range(2)])
    mixed = torch.einsum("dcw,wij->dcij", torch.randn(64, 3, 4, generator=draw), waves)
    return mixed + 0.01 * torch.randn(64, 3, 8, 8, generator=draw)


def codes(height: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.eye(height).repeat_interleave(width, dim=0), torch.eye(width).repeat(height, 1)


class TestFilters:
    def test_smoke_table(self, plain, tmp_path):
        table = embedding_filters("smoke", weights=plain, folder=tmp_path / "runs")
        assert list(table) == ["model", "replicate", "component", "explained", "low_frequency"]
        config = filters_experiment.CONFIGS["smoke"]
        counts = table.groupby("model").replicate.nunique()
        assert counts.to_dict() == {"trained": 1 + config.n_groups, "untrained": config.n_untrained}
        assert table.component.max() == 28
        assert table.explained.between(0, 1).all()
        assert table.low_frequency.between(0, 1).all()
        assert (table.groupby(["model", "replicate"]).explained.sum() <= 1).all()

    def test_slow_waves_stand_out_and_noise_does_not(self, plain, tmp_path):
        waves = saved(tmp_path / "waves.safetensors", filters=smooth_filters())
        found = filters_experiment.compare(embedding_filters("quick", weights=waves, folder=tmp_path / "a"))
        share, variance = (found.loc[name] for name in filters_experiment.MEASURES)
        assert variance.value > 0.99  # twelve directions and a trace of noise
        assert variance.low > variance.control_high
        assert share.low > share.control_high
        found = filters_experiment.compare(embedding_filters("quick", weights=plain, folder=tmp_path / "b"))
        assert (found.low <= found.control_high).all()
        assert (found.high >= found.control_low).all()

    def test_small_models_have_fewer_components(self):
        assert filters_experiment.n_components(torch.zeros(768, 3, 32, 32)) == 28
        assert filters_experiment.n_components(torch.zeros(20, 3, 8, 8)) == 18
        assert filters_experiment.n_components(torch.zeros(96, 3, 2, 2)) == 12

    def test_hybrid_is_refused_at_once(self, tmp_path):
        import timm

        path = tmp_path / "hybrid.safetensors"
        zoo.save(path, timm.create_model("vit_tiny_r_s16_p8_224", num_classes=2), "vit_tiny_r_s16_p8_224", {})
        with pytest.raises(ValueError, match="there are no RGB filters"):
            embedding_filters("smoke", weights=str(path), folder=tmp_path / "runs")


class TestPositions:
    def test_smoke_table(self, plain, tmp_path):
        table = position_similarity("smoke", weights=plain, folder=tmp_path / "runs")
        assert list(table) == ["model", "replicate", "quantity", "distance", "value"]
        assert set(table.model) == {"trained", "untrained", "shuffled", "ring-shuffled"}
        curves = table[table.quantity.isin(positions_experiment.RELATIONS)]
        assert set(curves.model) == {"trained", "untrained"}
        assert curves.distance.between(1, 7).all()
        assert table.loc[table.quantity.isin(positions_experiment.MEASURES), "distance"].isna().all()
        assert table.value.between(-2, 2).all()
        assert table.loc[table.quantity != "row excess", "value"].between(-1.5, 1.5).all()

    @pytest.mark.slow
    def test_row_and_column_codes_are_seen(self, tmp_path):
        pos = torch.zeros(36, 64)
        pos[:, :48] = torch.cat([c.repeat_interleave(4, dim=1) for c in codes(6, 6)], dim=1)
        path = saved(tmp_path / "cross.safetensors", pos=pos)
        found = positions_experiment.compare(position_similarity("quick", weights=path, folder=tmp_path / "a"))
        assert found.value["row excess"] == pytest.approx(0.5)
        assert found.value["column excess"] == pytest.approx(0.5)
        assert (found.low > found.control_high)[["row excess", "column excess"]].all()

    @pytest.mark.slow
    def test_middle_and_edge_alone_do_not_pass_for_rows_and_columns(self, tmp_path):
        draw = torch.Generator().manual_seed(0)
        code = torch.randn(3, 64, generator=draw)
        pos = code[rings((6, 6))] + 0.05 * torch.randn(36, 64, generator=draw)
        path = saved(tmp_path / "rings.safetensors", pos=pos)
        table = position_similarity("quick", weights=path, folder=tmp_path / "a")
        found = positions_experiment.compare(table)
        assert found.value["row excess"] > 0.05
        assert not (found.low > found.control_high).any()
        lenient = positions_experiment.compare(table[table.model.isin(["trained", "untrained"])])
        assert (lenient.low > lenient.control_high)["row excess"]  # what the strict control is for

    def test_one_row_of_patches_has_no_excess(self):
        found = positions_experiment.measures(similarity_map(torch.eye(5).cumsum(0), (1, 5)))
        assert [row["quantity"] for row in found] == ["rank correlation"]
        assert found[0]["value"] > 0.5

    @pytest.mark.parametrize("grid", [(3, 5), (6, 6), (1, 4)])
    def test_curves_know_rows_from_columns(self, grid):
        rows = similarity_map(codes(*grid)[0], grid)
        found = pd.DataFrame(positions_experiment.curves(rows))
        means = found.groupby("quantity").value.agg(["min", "max"])
        assert means.loc["same row"].tolist() == [1.0, 1.0]
        assert found[found.quantity == "same row"].distance.tolist() == list(range(1, grid[1]))
        others = means.drop("same row")
        assert others.eq(0.0).all(axis=None)

    def test_shuffling_keeps_rings(self):
        groups = rings((5, 7))
        assert groups.bincount().tolist() == [20, 12, 3]
        order = shuffled_within(groups, torch.Generator().manual_seed(0))
        assert sorted(order.tolist()) == list(range(35))
        assert groups[order].equal(groups)
        assert not order.equal(torch.arange(35))

    def test_rectangular_timm_model(self, tmp_path):
        import timm

        model = timm.create_model("test_vit", img_size=(64, 160), num_classes=2)
        zoo.save(tmp_path / "wide.safetensors", model, "test_vit", {})
        table = position_similarity("smoke", weights=str(tmp_path / "wide.safetensors"), folder=tmp_path / "runs")
        reach = table[table.model == "trained"].groupby("quantity").distance.max()
        assert reach["same row"] == 9
        assert reach["same column"] == 3


class TestJackknife:
    def test_mean_known_answers(self):
        # Leaving out one of n values of a mean gives the textbook standard error.
        values = np.random.default_rng(0).normal(size=30)
        left_out = [(values.sum() - value) / 29 for value in values]
        low, high = jackknife_interval(values.mean(), left_out)
        half = 2.0452 * values.std(ddof=1) / np.sqrt(30)  # Student's t, 29 degrees of freedom
        assert (high + low) / 2 == pytest.approx(values.mean())
        assert (high - low) / 2 == pytest.approx(half, rel=1e-4)

    def test_groups_share_out_all_samples(self):
        samples = torch.arange(10)
        left = [set(samples.tolist()) - set(without_group(samples, g, 4).tolist()) for g in range(4)]
        assert sorted(sum(map(list, left), [])) == list(range(10))

    def test_a_single_group(self):
        with pytest.raises(ValueError, match="1 groups left out, expected 2 or more"):
            jackknife_interval(0.5, [0.5])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
class TestRunning:
    def test_again_is_the_same_and_computes_nothing(self, experiment, plain, tmp_path):
        first = experiment("smoke", weights=plain, folder=tmp_path / "runs")
        times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.json")}
        again = experiment("smoke", weights=plain, folder=tmp_path / "runs")
        pd.testing.assert_frame_equal(first, again)
        assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.json")}

    def test_seed_draws_other_controls_for_the_same_trained_model(self, experiment, plain, tmp_path):
        one, other = (experiment("smoke", seed=s, weights=plain, folder=tmp_path / "runs") for s in (0, 1))
        same = one["model"] == "trained"
        pd.testing.assert_frame_equal(one[same], other[same])
        control = one["model"] == "untrained"
        values = one.columns[-1]
        assert not np.isclose(one[control][values], other[control][values]).any()

    def test_changed_weights_under_the_same_name_run_anew(self, experiment, plain, tmp_path):
        before = experiment("smoke", weights=plain, folder=tmp_path / "runs")
        noise = torch.randn(36, 64, generator=torch.Generator().manual_seed(1))
        saved(Path(plain), filters=smooth_filters(), pos=noise)
        after = experiment("smoke", weights=plain, folder=tmp_path / "runs")
        trained = before["model"] == "trained"
        values = before.columns[-1]
        assert not np.isclose(before[trained][values], after[trained][values]).all()

    def test_runs_are_json_of_scalars(self, experiment, plain, tmp_path):
        experiment("smoke", weights=plain, folder=tmp_path / "runs")
        stored = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*.json")]
        assert {run["config"]["model"] for run in stored} >= {"trained", "untrained"}

    def test_bad_input(self, experiment, tmp_path):
        with pytest.raises(ValueError, match="unknown preset 'tiny'"):
            experiment("tiny", folder=tmp_path)
        with pytest.raises(FileNotFoundError, match=r"nowhere\.safetensors"):
            experiment("smoke", weights=str(tmp_path / "nowhere.safetensors"), folder=tmp_path)
