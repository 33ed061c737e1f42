"""Measures of given weights: known answers from made-up weights and tables, controls, pictures to look at."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from torch import Tensor

from vitlab.analysis.distance import mean_attention_distance
from vitlab.analysis.positions import position_similarity
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.zoo import Pretrained
from vitlab.studies import measure

TINY = ViTConfig(image_size=48, patch_size=8, dim=64, depth=1, n_heads=1, mlp_dim=8, n_classes=2)
SMOKE = measure.SIZES["smoke"]


def save(path: Path, filters: Tensor | None = None, pos: Tensor | None = None) -> str:
    """Write the weights of a tiny ViT, with these filters [D 3 8 8] and patch embeddings [36 D] in it."""
    model = ViT(TINY, seed=7)
    with torch.no_grad():
        if filters is not None:
            model.patch_embed.proj.weight.copy_(filters)
        if pos is not None:
            model.pos_embed[0, 1:] = pos
    zoo.save(path, model, "Lab-Ti/8", {})
    return str(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return save(tmp_path_factory.mktemp("plain") / "plain.safetensors")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model whose attention is far from uniform: its queries and keys are ten times larger than fresh ones."""
    model = zoo.create("Lab-Ti/8", seed=3)
    for block in model.blocks:
        block.attn.qkv.weight.data *= 10
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    zoo.save(path, model, "Lab-Ti/8", {"steps": 0})
    return str(path)


@pytest.fixture(scope="module")
def table(weights):
    return measure.distances(weights, **SMOKE["distances"])


def codes(height: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.eye(height).repeat_interleave(width, dim=0), torch.eye(width).repeat(height, 1)


class TestFilters:
    def test_rows(self, plain):
        table = measure.filters(plain, **SMOKE["filters"])
        assert table.groupby("model").replicate.nunique().to_dict() == {"trained": 1, "untrained": 3}
        assert table.component.max() == 28 and table[["explained", "low_frequency"]].stack().between(0, 1).all()
        other = measure.filters(plain, **SMOKE["filters"], seed=1)
        same = table.model == "trained"
        pd.testing.assert_frame_equal(table[same], other[same])
        assert not np.isclose(table[~same].explained, other[~same].explained).any()  # other controls

    def test_slow_waves_stand_out_and_noise_does_not(self, plain, tmp_path):
        draw = torch.Generator().manual_seed(0)
        y, x = torch.arange(8)[:, None] / 8, torch.arange(8) / 8
        waves = torch.stack([torch.cos(torch.pi * (a * y + b * x)) for a in range(2) for b in range(2)])
        smooth = torch.einsum("dcw,wij->dcij", torch.randn(64, 3, 4, generator=draw), waves)
        smooth += 0.01 * torch.randn(64, 3, 8, 8, generator=draw)
        path = save(tmp_path / "waves.safetensors", filters=smooth)
        sums = {"explained": "sum", "low_frequency": "mean"}
        waves, noise = (
            measure.filters(each, n_untrained=10).groupby(["model", "replicate"]).agg(sums) for each in (path, plain)
        )
        assert waves["explained"]["trained", 0] > 0.99  # twelve directions and a trace of noise
        assert (waves.loc["trained", 0] > waves.loc["untrained"]).all().all()
        assert not (noise.loc["trained", 0] > noise.loc["untrained"]).all().any()

    @pytest.mark.parametrize("shape, n", [((768, 3, 32, 32), 28), ((20, 3, 8, 8), 19), ((96, 3, 2, 2), 12)])
    def test_small_models_have_fewer_components(self, shape, n):
        assert measure.n_components(torch.zeros(shape)) == n

    def test_a_hybrid_is_refused(self, tmp_path):
        path = tmp_path / "hybrid.safetensors"
        zoo.save(path, timm.create_model("vit_tiny_r_s16_p8_224", num_classes=2), "vit_tiny_r_s16_p8_224", {})
        with pytest.raises(ValueError, match="there are no RGB filters"):
            measure.filters(str(path))


class TestPositions:
    def test_one_row_of_patches_has_no_excess(self):
        found = measure.position_measures(position_similarity(torch.eye(5).cumsum(0), (1, 5)))
        assert list(found) == ["rank correlation"] and found["rank correlation"] > 0.5

    def test_shuffling_keeps_rings(self):
        groups = measure.rings((5, 7))
        assert groups.bincount().tolist() == [20, 12, 3]
        order = measure.shuffle_within(groups, torch.Generator().manual_seed(0))
        assert sorted(order.tolist()) == list(range(35)) and not order.equal(torch.arange(35))
        assert groups[order].equal(groups)


class TestDistances:
    def test_one_row_per_model_image_block_and_head(self, table):
        assert table.groupby(["model", "model_seed", "image", "block", "head"]).size().tolist() == [1] * (2 * 8 * 4 * 4)
        assert table["distance_px"].between(0, 24 * 2**0.5).all() and table["prefix_mass"].between(0, 1).all()
        assert (table["renormalized_px"] >= table["distance_px"] - 1e-4).all()

    @pytest.mark.parametrize("mode", ["paper", "renormalized"])
    def test_they_are_the_analysis_functions(self, weights, table, mode):
        pretrained = zoo.load(weights)
        x = pretrained.prepare(image_set(World(), 8, HELD_OUT).images)
        expected = mean_attention_distance(pretrained.model, x, mode).flatten()
        found = table[table["model"] == "trained"][measure.DISTANCE_COLUMNS[mode]]
        np.testing.assert_allclose(found, expected, atol=1e-4)

    def test_the_control_is_a_fresh_model_and_the_seed_draws_images(self, weights, table):
        trained, untrained = (table[table["model"] == model]["distance_px"] for model in ("trained", "untrained"))
        assert untrained.std() < trained.std() and abs(untrained.mean() - 16) < 2  # of uniform attention on this grid
        other = measure.distances(weights, **SMOKE["distances"], seed=1)
        assert not np.allclose(table["distance_px"], other["distance_px"])

    def test_photographs_of_any_size(self, weights, monkeypatch):
        draw = torch.Generator().manual_seed(0)
        made = [torch.randint(0, 256, (3, *size), generator=draw).to(torch.uint8) for size in ((40, 70), (20, 24))]
        monkeypatch.setattr(measure.datasets, "photographs", lambda limit: [("", each) for each in made][:limit])
        heads = measure.head_summary(measure.distances(weights, "photographs", **SMOKE["distances"]))
        assert (heads["low"] < heads["distance_px"]).all() and (heads["n"] == 2).all()

    def test_statistics_of_a_table_made_by_hand(self):
        rising = {1: [10.0, 51.0, 80.0], 2: [50.0, 60.0, 70.0], 3: [100.0, 101.0, 104.0]}
        rows = [
            dict(model=model, model_seed=seed, image=image, block=4 - block if seed else block, head=head)
            | dict(distance_px=value + image, renormalized_px=value, prefix_mass=0.1)
            for model, seed in (("trained", 0), ("untrained", 0), ("untrained", 1))  # the last upside down
            for image in (0, 1)
            for block, px in rising.items()
            for head, value in enumerate(px, 1)
        ]
        table = pd.DataFrame(rows).sample(frac=1, random_state=0)  # the order of rows says nothing
        contrasts = measure.contrasts(table)
        assert contrasts.loc[1].tolist() == [1, 1, 70, 70 - 4, 70 - 37] and list(contrasts.index) == [0, 1]
        heads = measure.head_summary(table).set_index(["model", "model_seed", "block", "head"])
        assert heads.loc[("trained", 0, 1, 2), ["distance_px", "renormalized_px"]].tolist() == [51.5, 51]
        flat = measure.contrasts(table.assign(distance_px=0.0))
        assert flat["trend"].tolist() == [0, 0]  # a flat curve has none


class TestRollout:
    def test_rows(self, weights):
        table = measure.rollout(weights, **SMOKE["rollout"])
        assert table.groupby(["model", "model_seed", "method", "image"]).size().tolist() == [1] * (2 * 2 * 16)
        assert table[["mass", "area", "shuffled_mass", "shuffled_area", "hit", "chance"]].stack().between(0, 1).all()
        one = table[(table["model"] == "trained") & (table["method"] == "rollout")].sort_values("image")
        np.testing.assert_allclose(one["shuffled_area"], np.roll(one["area"], -1))  # another image's mask
        assert (one["shuffled_mass"] != one["mass"]).all()

    def test_comparisons_of_a_table_made_by_hand(self):
        masses = {("trained", 0, "rollout"): 0.5, ("trained", 0, "last block"): 0.4}
        masses |= {("untrained", seed, m): 0.2 + 0.1 * seed for seed in (0, 1) for m in ("rollout", "last block")}
        table = pd.DataFrame(
            dict(model=model, model_seed=seed, method=method, image=image, mass=mass, area=0.2, shuffled_mass=0.3)
            | dict(shuffled_area=0.2, hit=1.0, chance=0.25)
            for (model, seed, method), mass in masses.items()
            for image in range(12)
        )
        pairs = measure.per_image(table)
        found = measure.compare_rollout(pairs).set_index("what")
        expected = {"trained": 0.3, "untrained": 0.05, "another image's mask": 0.1, "trained − untrained": 0.25}
        expected |= {"trained − another mask": 0.2, "rollout − last block": 0.1}
        assert found["mean"].to_dict() == pytest.approx(expected) and (found["n"] == 12).all()
        assert len(pairs) == 2 * 12 and pairs["trained_hit"].eq(0.75).all()
        np.testing.assert_allclose(found["low"], found["mean"])  # every image alike


class TestPictures:
    def test_the_world_of_other_proportions_is_the_middle_of_a_square(self):
        square, wide = measure.world_at((48, 48), 5, 2), measure.world_at((32, 48), 5, 2)
        assert wide.images.equal(square.images[:, :, 8:40]) and wide.masks.equal(square.masks[:, 8:40])
        assert square.images.equal(image_set(World(image_size=48), 5, HELD_OUT + 10).images)

    def test_views_are_cut_as_the_model_is_given_them_and_have_no_more_pixels(self):
        model = Pretrained(torch.nn.Identity(), "Lab-Mu/8", "nowhere", (32, 32))
        picture = torch.arange(200).repeat(160, 1).to(torch.uint8).repeat(3, 1, 1)  # brighter from left to right
        seen, given = measure.view(model, [picture], side=96), model.prepare(picture[None])[0] * 0.5 + 0.5
        np.testing.assert_allclose(seen[0].reshape(32, 3, 32, 3, 3).mean((1, 3)), given.permute(1, 2, 0), atol=0.02)
        for side, pixels in ((32, 32), (400, 160)):
            assert measure.view(model, [torch.zeros(3, side, side, dtype=torch.uint8)]).shape[1] == pixels

    def test_a_folder_of_images_is_drawn_from_by_seed(self, weights, tmp_path):
        from PIL import Image

        for number in range(6):
            (tmp_path / "photos" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
            path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
            Image.new("RGB", (40 + number, 50), (40 * number, 0, 0)).save(path)
        first, again, other = (
            torch.stack(measure.load_pictures(zoo.load(weights), str(tmp_path / "photos"), 4, seed))
            for seed in (0, 0, 1)
        )
        assert len(first) == 4 and first.equal(again) and not first.equal(other)


SMALL = {"img_size": 32, "embed_dim": 32, "num_heads": 2, "depth": 2}
COARSE = partial(torch.nn.LayerNorm, eps=1e-5)  # PyTorch's ε, not the authors'
FEW = {key: value for key, value in SMALL.items() if key != "num_heads"} | {"num_heads": 4, "num_classes": 10}


@pytest.mark.parametrize(
    ("name", "settings", "chapters", "words"),
    [
        ("vit_tiny_patch16_224", SMALL, "01 06 07 08", ""),
        ("vit_tiny_patch16_224", SMALL | {"num_classes": 0}, "06 07 08", "has no head.weight"),
        ("vit_tiny_patch16_224", SMALL | {"act_layer": "quick_gelu"}, "06 07 08", "computes something else"),
        ("vit_tiny_patch16_224", SMALL | {"norm_layer": COARSE}, "06 07 08", "computes something else"),
        ("vit_tiny_patch16_224", SMALL | {"reg_tokens": 2}, "06 07 08", "not expected: reg_token"),
        ("vit_medium_patch16_gap_256", SMALL, "06 07 08", "has no cls_token"),
        ("deit_tiny_distilled_patch16_224", SMALL, "06 07 08", "not expected: dist_token"),
        ("deit3_small_patch16_224", SMALL, "06 07 08", "blocks.0.ls1.gamma"),
        ("vit_base_patch32_clip_224", SMALL, "06 07 08", "norm_pre.weight"),
        ("vit_base_patch16_siglip_224", SMALL, "06 07 08", "has no cls_token"),
        ("vit_tiny_r_s16_p8_224", SMALL, "07 08", "no RGB filters"),
        ("beit_base_patch16_224", SMALL, "07 08", "no learned absolute position embeddings"),
        ("vit_small_patch16_18x2_224", SMALL, "06", "computes attention more than once"),
        ("cait_xxs24_224", FEW, "06", "changes its softmax before using it"),
        ("swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1)}, "", "is no plain ViT"),
        ("test_resnet", {}, "", "is no plain ViT"),
    ],
)
def test_a_chapter_takes_a_model_or_says_what_it_needs(name, settings, chapters, words, monkeypatch):
    load, made = zoo.load, timm.create_model(name, **settings).eval()
    monkeypatch.setattr(zoo, "load", lambda weights: load(made))
    refused = []
    for chapter in ("01", "06", "07", "08"):
        if chapter in chapters.split():
            assert measure.load_for(f"{chapter}_a", name).model is made
            continue
        with pytest.raises(ValueError, match=f"^WEIGHTS={name} is not for chapter {chapter}: it needs .*; ") as caught:
            measure.load_for(f"{chapter}_a", name)
        refused.append(str(caught.value))
    assert "\n" not in "".join(refused) and (not words or any(words in each for each in refused))


def test_a_world_model_needs_a_head_for_the_worlds_classes(tmp_path):
    assert measure.load_for("08_a", "lab-world", "WORLD_WEIGHTS").name == "Lab-S/8"
    words = "^WORLD_WEIGHTS=Lab-Mu/8@.*take lab-world.*this one tells 7 classes apart, not the world's 10"
    zoo.save(tmp_path / "m.safetensors", zoo.create("Lab-Mu/8", n_classes=7), "Lab-Mu/8", {})
    with pytest.raises(ValueError, match=words):
        measure.load_for("08_a", f"Lab-Mu/8@{tmp_path}/m.safetensors", "WORLD_WEIGHTS")
