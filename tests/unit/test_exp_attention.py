"""Attention distances and rollout on masks, as experiments: tables, controls, known answers of what is made of them."""

import numpy as np
import pandas as pd
import pytest
import torch

from vitlab.analysis.distance import attention_distance, mean_attention_distance
from vitlab.analysis.rollout import attention_rollout, last_block_attention
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.experiments import attention_distances, rollout_masks, subjects
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.zoo import Pretrained

pytestmark = pytest.mark.slow


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
def distances(weights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("distances")
    return attention_distances.attention_distances("smoke", weights=weights, folder=folder)


@pytest.fixture(scope="module")
def rolled(weights, tmp_path_factory):
    return rollout_masks.rollout_masks("smoke", weights=weights, folder=tmp_path_factory.mktemp("rollout"))


def test_distances_have_one_row_per_model_image_block_and_head(distances):
    assert len(distances) == 2 * 8 * 4 * 4
    keys = ["model", "model_seed", "image", "block", "head"]
    assert not distances.duplicated(keys).any()
    assert set(distances["block"]) == {1, 2, 3, 4} and set(distances["head"]) == {1, 2, 3, 4}
    assert set(distances["images"]) == {"world"}  # "auto", for a lab model


def test_distances_stay_within_the_image(distances):
    diagonal = 24 * 2**0.5  # centres of opposite corners of 4 × 4 patches of 8 px
    assert distances["distance_px"].between(0, diagonal).all()
    assert distances["prefix_mass"].between(0, 1).all()
    assert (distances["renormalized_px"] >= distances["distance_px"] - 1e-4).all()


@pytest.mark.parametrize("mode", ["paper", "renormalized"])
def test_distances_are_the_analysis_functions(weights, distances, mode):
    pretrained = zoo.load(weights)
    x = pretrained.prepare(image_set(World(), 8, HELD_OUT).images)
    expected = mean_attention_distance(pretrained.model, x, mode).flatten()
    found = distances[distances["model"] == "trained"][attention_distances.COLUMNS[mode]]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_control_is_another_model_of_the_same_shape(distances):
    trained, untrained = (distances[distances["model"] == model] for model in ("trained", "untrained"))
    assert len(trained) == len(untrained)
    uniform = 16.0  # about the distance of uniform attention on this grid
    assert untrained["distance_px"].std() < trained["distance_px"].std()
    assert abs(untrained["distance_px"].mean() - uniform) < 2


def test_the_seed_gives_other_images_and_a_rerun_computes_nothing(weights, tmp_path, capsys):
    first, again = (
        attention_distances.attention_distances("smoke", weights=weights, folder=tmp_path) for _ in range(2)
    )
    assert "2 of 2 runs were finished before" in capsys.readouterr().out
    pd.testing.assert_frame_equal(first, again)
    other = attention_distances.attention_distances("smoke", seed=1, weights=weights, folder=tmp_path)
    assert not np.allclose(first["distance_px"], other["distance_px"])


def test_a_changed_weights_file_of_the_same_name_is_another_run(tmp_path):
    path = tmp_path / "model.safetensors"
    hashes = []
    for seed in (0, 1):
        zoo.save(path, zoo.create("Lab-Ti/8", seed=seed), "Lab-Ti/8", {})
        hashes += [subjects.weights_hash(str(path)), subjects.weights_hash(f"Lab-Ti/8@{path}")]
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]
    assert (
        subjects.weights_hash(str(tmp_path)) == subjects.weights_hash(f"local-dir:{tmp_path}") == hashes[2]
    )  # its folder
    assert subjects.weights_hash("vit_base_patch16_224") is None


def test_photographs_of_any_size_are_taken_each_once(weights, tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    sizes = {"wide": (3, 40, 70), "small": (3, 20, 24)}
    made = [(name, torch.randint(0, 256, size, generator=generator).to(torch.uint8)) for name, size in sizes.items()]
    monkeypatch.setattr(subjects.datasets, "photographs", lambda limit: made[:limit])
    table = attention_distances.attention_distances("smoke", weights=weights, folder=tmp_path, images="photographs")
    assert table["image"].nunique() == 2
    heads = attention_distances.head_summary(table)
    assert (heads["low"] < heads["distance_px"]).all() and (heads["n"] == 2).all()


def test_a_folder_of_images_is_drawn_from_by_seed(weights, tmp_path):
    from PIL import Image

    for number in range(6):
        path = tmp_path / "photos" / ("a" if number % 2 else "b") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + number, 50), (40 * number, 0, 0)).save(path)
    pretrained = zoo.load(weights)
    drawn = [subjects.load_pictures(pretrained, str(tmp_path / "photos"), 4, seed) for seed in (0, 0, 1)]
    assert [len(pictures) for pictures in drawn] == [4, 4, 4]
    hashes = [subjects.pictures_hash(pictures) for pictures in drawn]
    assert hashes[0] == hashes[1] != hashes[2]
    assert pretrained.prepare(drawn[0][0][None]).shape == (1, 3, 32, 32)


def test_missing_weights_and_unknown_presets_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        attention_distances.attention_distances("smoke", weights="nowhere.safetensors", folder=tmp_path)
    with pytest.raises(ValueError, match="quik"):
        rollout_masks.rollout_masks("quik", folder=tmp_path)


def test_uniform_distance_of_the_papers_grid():
    model = ViT(ViTConfig(dim=64, depth=1, n_heads=1, mlp_dim=64), 0)
    found = attention_distances.uniform_distance(Pretrained(model, "Tiny/16", "nowhere", (224, 224)))
    assert found == pytest.approx(116.49, abs=0.01)


def test_statistics_of_a_table_made_by_hand():
    rising = {1: [10.0, 51.0, 80.0], 2: [50.0, 60.0, 70.0], 3: [100.0, 101.0, 104.0]}
    rows = []
    for model, model_seed, flip in (("trained", 0, 1), ("untrained", 0, 1), ("untrained", 1, -1)):
        for image in (0, 1):
            for block, px in rising.items():
                for head, value in enumerate(px, 1):
                    block_now = block if flip == 1 else 4 - block
                    rows.append(dict(model=model, model_seed=model_seed, image=image, block=block_now, head=head))
                    rows[-1] |= dict(distance_px=value + image, renormalized_px=value, prefix_mass=0.1)
    table = pd.DataFrame(rows).sample(frac=1, random_state=0)  # the order of rows says nothing
    found = attention_distances.image_statistics(table).set_index(["model", "image"])
    assert found.loc[("trained", 1), ["trend", "spread_first", "spread_last"]].tolist() == [1, 70, 4]
    assert found.loc[("untrained", 0), ["trend", "spread_first", "spread_last"]].tolist() == [0, 37, 37]
    contrasts = attention_distances.contrasts(table)
    assert contrasts.loc[1].tolist() == [1, 1, 70, 70 - 4, 70 - 37] and list(contrasts.index) == [0, 1]
    assert attention_distances.local_share_in_low_blocks(table, 51.5).tolist() == [2 / 3, 1 / 3]  # of block 1
    heads = attention_distances.head_summary(table).set_index(["model", "model_seed", "block", "head"])
    assert heads.loc[("trained", 0, 1, 2), "distance_px"] == 51.5
    assert heads.loc[("trained", 0, 1, 2), "renormalized_px"] == 51


def test_a_flat_curve_has_no_trend():
    rows = [
        dict(model="trained", model_seed=0, image=0, block=block, head=head, distance_px=0.0, renormalized_px=0.0)
        for block in (1, 2, 3)
        for head in (1, 2)
    ]
    assert attention_distances.image_statistics(pd.DataFrame(rows))["trend"].tolist() == [0]


def test_the_world_of_other_proportions_is_the_middle_of_a_square():
    square, wide = subjects.world_at((48, 48), 5, 2), subjects.world_at((32, 48), 5, 2)
    assert wide.images.equal(square.images[:, :, 8:40]) and wide.masks.equal(square.masks[:, 8:40])
    assert square.images.equal(image_set(World(image_size=48), 5, HELD_OUT + 10).images)


def test_rollout_has_one_row_per_model_method_and_image(rolled):
    assert len(rolled) == 2 * 2 * 16
    assert not rolled.duplicated(["model", "model_seed", "method", "image"]).any()
    shares = ["mass", "area", "shuffled_mass", "shuffled_area", "hit", "chance"]
    assert rolled[shares].stack().between(0, 1).all()
    assert set(rolled["hit"]) <= {0, 1}


def test_the_other_mask_is_another_images(rolled):
    one = rolled[(rolled["model"] == "trained") & (rolled["method"] == "rollout")].sort_values("image")
    np.testing.assert_allclose(one["shuffled_area"], np.roll(one["area"], -1))
    assert (one["shuffled_mass"] != one["mass"]).all()


def test_both_maps_are_the_analysis_functions(weights):
    pretrained = zoo.load(weights)
    x = pretrained.prepare(image_set(World(), 3, HELD_OUT).images)
    found = rollout_masks.both_maps(pretrained.model, x)
    torch.testing.assert_close(found["rollout"], attention_rollout(pretrained.model, x))
    torch.testing.assert_close(found["last block"], last_block_attention(pretrained.model, x))


def test_both_maps_of_a_model_without_class_token():
    model = ViT(ViTConfig(image_size=32, patch_size=8, dim=64, depth=2, n_heads=2, mlp_dim=64, pool="gap"), 0).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = rollout_masks.both_maps(model, x)
    torch.testing.assert_close(found["last block"], last_block_attention(model, x))
    torch.testing.assert_close(found["rollout"].sum((1, 2)), torch.ones(2))


def test_maps_that_know_nothing_and_maps_that_know_all():
    masks = image_set(World(), 6, HELD_OUT).masks
    nothing = pd.DataFrame(rollout_masks._rows("rollout", torch.ones(6, 4, 4), masks))
    np.testing.assert_allclose(nothing["mass"], nothing["area"], atol=1e-6)
    np.testing.assert_allclose(nothing["shuffled_mass"], nothing["shuffled_area"], atol=1e-6)
    everything = pd.DataFrame(rollout_masks._rows("rollout", masks.float(), masks))
    assert (everything["mass"] == 1).all() and (everything["hit"] == 1).all()


def test_comparisons_of_a_table_made_by_hand():
    masses = {("trained", 0, "rollout"): 0.5, ("trained", 0, "last block"): 0.4}
    masses |= {("untrained", seed, method): 0.2 + 0.1 * seed for seed in (0, 1) for method in ("rollout", "last block")}
    table = pd.DataFrame(
        dict(model=model, model_seed=seed, method=method, image=image, mass=mass, area=0.2, shuffled_mass=0.3)
        | dict(shuffled_area=0.2, hit=1.0, chance=0.25)
        for (model, seed, method), mass in masses.items()
        for image in range(12)
    )
    pairs = rollout_masks.per_image(table)
    assert len(pairs) == 2 * 12
    found = rollout_masks.comparisons(pairs).set_index("what")
    expected = {
        "trained": 0.3,
        "untrained": 0.05,
        "another image's mask": 0.1,
        "trained − untrained": 0.25,
        "trained − another mask": 0.2,
        "rollout − last block": 0.1,
    }
    assert found["mean"].to_dict() == pytest.approx(expected)
    assert (found["n"] == 12).all() and pairs["trained_hit"].eq(0.75).all()
    np.testing.assert_allclose(found["low"], found["mean"])  # every image alike


def test_rollouts_seed_and_rerun(weights, rolled, tmp_path, capsys):
    other = rollout_masks.rollout_masks("smoke", seed=1, weights=weights, folder=tmp_path)
    assert not np.allclose(other["mass"], rolled["mass"])
    capsys.readouterr()
    rollout_masks.rollout_masks("smoke", seed=1, weights=weights, folder=tmp_path)
    assert "2 of 2 runs were finished before" in capsys.readouterr().out


def test_half_of_the_attention_on_the_class_token_halves_the_distance():
    attn = torch.full((1, 1, 197, 197), 0.5 / 196)
    attn[..., 0] = 0.5
    assert attention_distance(attn, (14, 14), 16, 1).item() == pytest.approx(58.2, abs=0.1)
