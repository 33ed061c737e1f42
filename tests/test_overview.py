"""Every analysis of one model: the tables hold what the single analyses give, and what is left out says why."""

import pandas as pd
import pytest
import timm
import torch
from PIL import Image

import vitlab
from vitlab import cli
from vitlab.analysis.distance import distance_and_mass
from vitlab.analysis.rollout import attention_rollout
from vitlab.models import zoo
from vitlab.overview import gallery


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, 256, (3, 3, 50, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return timm.create_model("vit_small_patch14_reg4_dinov2", depth=2, img_size=42).eval()


def test_its_tables_are_the_single_analyses(small, images):
    found, x = vitlab.analyse(small, images), zoo.load(small).prepare(images)
    assert len(found.heads) == 2 * 6 and found.left_out == {}
    cell = found.heads.set_index(["block", "head"]).loc[(2, 5)]
    for mode, column in (("paper", "distance_px"), ("renormalized", "renormalized_px")):
        distance, mass = distance_and_mass(small, x, mode)
        assert cell[column] == pytest.approx(distance[:, 1, 4].mean().item(), rel=1e-5)
    assert cell["prefix_mass"] == pytest.approx(mass[:, 1, 4].mean().item(), rel=1e-5)
    with torch.no_grad():
        norms = small.get_intermediate_layers(x, n=[1])[0].norm(dim=-1)
    assert cell["token_norm"] == pytest.approx(norms.mean().item(), rel=1e-5)
    assert cell["largest_norm"] == pytest.approx(norms.amax(1).mean().item(), rel=1e-5)
    third = found.rollout[(found.rollout["image"] == 3) & (found.rollout["row"] == 1)]
    torch.testing.assert_close(torch.tensor(third["share"].to_numpy()), attention_rollout(small, x)[2, 0])
    pair = found.positions.query("row == 1 and column == 2 and to_row == 3 and to_column == 1")["similarity"]
    assert pair.item() == pytest.approx(vitlab.position_similarity(small)[0, 1, 2, 0].item())
    _, explained = vitlab.filter_components(small)
    assert found.filters["explained"].tolist() == pytest.approx(explained.tolist())


def test_norms_are_of_one_pass_where_the_head_pools_by_attention(images):
    pooled = timm.create_model("vit_base_patch16_siglip_224", embed_dim=32, num_heads=2, depth=2, img_size=32).eval()
    found, x = vitlab.analyse(pooled, images), zoo.load(pooled).prepare(images)
    with torch.no_grad():
        norms = pooled.get_intermediate_layers(x, n=[1])[0].norm(dim=-1)
    cell = found.heads.set_index(["block", "head"]).loc[(2, 1)]
    assert cell["token_norm"] == pytest.approx(norms.mean().item(), rel=1e-5)


def test_a_figure_and_tables_to_keep(small, images, tmp_path):
    found = vitlab.analyse(small, images)
    assert [path.stem for path in found.to_csv(tmp_path)] == ["heads", "rollout", "positions", "filters"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "heads.csv"), found.heads)
    assert {ax.get_title() for ax in found.plot().axes} >= {"attention distance", "rollout", "first image", "norms"}


def test_what_a_model_has_not_is_left_out_and_said(images):
    found = vitlab.analyse(zoo.create("R+Lab-Mu/8"), images)
    assert found.left_out.keys() == {"filters"} and "no RGB filters" in found.left_out["filters"]
    assert found.filters.empty and len(found.plot().axes) > 5
    with pytest.raises(ValueError, match="is no plain ViT"):
        vitlab.analyse(timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)), images)


def test_a_module_is_taken_as_it_is(small):
    found = vitlab.load(small)
    assert found.model is small and "for images of 42 x 42 px, normalised by mean (0.485" in found.source
    with pytest.raises(ValueError, match="does not tell its image size"):
        vitlab.load(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="makes a model by its name"):
        zoo.load(small, untrained=True)


def test_the_command_writes_them_for_a_folder(tmp_path, images, capsys):
    (tmp_path / "mine").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "mine" / f"{number}.png")
    assert cli.main(["analyse", "lab-masked", str(tmp_path / "mine"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "3 images" in said and (tmp_path / "out" / "overview.png").is_file() and "heads.csv" in said
    assert cli.main(["analyse", "lab", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2


def test_a_gallery_is_a_page_and_a_table_and_says_what_was_left_out(tmp_path):
    images = torch.zeros(1, 3, 96, 96, dtype=torch.uint8)
    page, table = gallery(["lab-world", "no_such_vit"], images, tmp_path)
    assert (
        "no_such_vit is left out: " in page.read_text()
        and (tmp_path / "1.png").exists() | (tmp_path / "1.jpg").exists()
    )
    assert len(pd.read_csv(table)) == len(vitlab.analyse("lab-world", images).heads)
    with pytest.raises(ValueError, match="nothing to show: no_such_vit is left out"):
        gallery(["no_such_vit"], images, tmp_path)
