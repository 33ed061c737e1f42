"""Variants of the ViT (App. D.3, D.4, D.6): known answers, trainings, files, what the analyses see, bad input."""

import itertools

import pytest
import torch
from weights import open_attention, randomise, rollout_from_maps

from vitlab.analysis import attention, positions, rollout
from vitlab.models import variants, zoo
from vitlab.models.adapt import resize_positions, with_new_head
from vitlab.models.variants import AxialAttention, Offsets, PlacedBlock, PositionTable, RelativeAttention
from vitlab.models.vit import Attention, Block, ViT, ViTConfig

BODY = {"image_size": 32, "patch_size": 8, "dim": 16, "depth": 2, "n_heads": 2, "mlp_dim": 24, "n_classes": 5}
TABLE_8 = [  # its eight cells
    ("none", "stem"),
    *itertools.product(("1d", "2d"), variants.PLACED),
    ("relative", "every block"),
]
FULL = [{"positions": name, "placed": place} for name, place in [*TABLE_8, ("relative", "shared")]]
AXIAL = [{"positions": name, "placed": place, "attention": "axial", "pool": "gap"} for name, place in TABLE_8[:7]]
SOME = [FULL[0], FULL[5], FULL[7], FULL[8], AXIAL[1]]  # one of each kind of code
ALL = [*FULL, FULL[6] | {"pool": "gap"}, FULL[7] | {"pool": "gap"}, AXIAL[0], AXIAL[3], AXIAL[5]]


def name_of(options):
    return "-".join(options.values()).replace(" ", "-")


def small(**options):
    return randomise(variants.build(BODY | options), 0.3).train()


def images(n=3, size=32, dtype=torch.float32):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(2), dtype=dtype)


every = pytest.mark.parametrize("options", ALL, ids=name_of)
some = pytest.mark.parametrize("options", SOME, ids=name_of)


# ---- known answers ----


@pytest.mark.parametrize("n_prefix", [0, 1])
@pytest.mark.parametrize("way", ["training", "evaluation", "open"])
def test_relative_logits_are_those_of_a_bias_written_by_hand_on_2_x_3_patches(way, n_prefix):
    offsets = Offsets(n_patches=6, head_dim=4)
    attention = randomise(RelativeAttention(Attention(8, 2, 0.0), offsets, own=True).double(), 0.3)
    attention.train(way == "training")
    attention.fused_attn = way != "open"
    x = torch.randn(3, n_prefix + 6, 8, dtype=torch.float64)
    wanted = torch.zeros(3, n_prefix + 6, 8, dtype=torch.float64)
    q, k, v = (part.unflatten(2, (2, 4)) for part in attention.qkv(x).chunk(3, dim=2))  # [B T heads D_h]
    for b, head, query in itertools.product(range(3), range(2), range(n_prefix + 6)):
        logits = []
        for key in range(n_prefix + 6):
            logit = q[b, query, head] @ k[b, key, head]
            if query >= n_prefix and key >= n_prefix:
                offset = query - key  # p_q - p_k, from -5 to 5
                logit = logit + q[b, query, head] @ offsets.pos_embed_offsets[5 - offset]
            logits.append(logit / 2)  # the root of D_h = 4
        wanted[b, query, 4 * head : 4 * head + 4] = torch.stack(logits).softmax(0) @ v[b, :, head]
    torch.testing.assert_close(attention(x), attention.proj(wanted), atol=1e-12, rtol=0)


def test_positions_2d_are_the_column_s_half_then_the_row_s_on_2_x_3_patches():
    table = randomise(PositionTable("2d", n_prefix=1, grid=(2, 3), dim=4), 0.3)
    x, y = table.pos_embed_x[0], table.pos_embed_y[0]
    assert len(x) == 3 and len(y) == 2
    wanted = [table.pos_embed_class[0, 0]] + [torch.cat([x[col], y[row]]) for row in range(2) for col in range(3)]
    assert torch.equal(table()[0], torch.stack(wanted))


def test_positions_in_every_block_are_added_to_each_block_s_input():
    model = small(placed="every block")
    x = model.sequence(model.patch_embed(images()))
    for block in model.blocks:
        x = Block.forward(block, x + block.positions.pos_embed)
    assert torch.equal(model.norm(x), model.forward_features(images()))
    assert not torch.equal(model.blocks[0].positions.pos_embed, model.blocks[1].positions.pos_embed)


@pytest.mark.parametrize("fused", [True, False])
def test_axial_attention_stays_in_its_row_or_column(fused):
    rows, cols = 2, 3
    ordinary, x = randomise(Attention(8, 2, 0.0), 0.3).train(), torch.randn(5, 6, 8)
    by_axis = {"rows": [[0, 1, 2], [3, 4, 5]], "columns": [[0, 3], [1, 4], [2, 5]]}
    for axis, lines in by_axis.items():
        axial = AxialAttention(ordinary, (rows, cols), axis)
        axial.fused_attn = fused
        wanted = torch.empty_like(x)
        for line in lines:
            wanted[:, line] = ordinary(x[:, line])
        torch.testing.assert_close(axial(x), wanted)


@every
def test_only_without_positions_is_the_order_of_patches_of_no_consequence(options):
    model = small(**options)
    pixels = images().unflatten(3, (4, 8)).unflatten(2, (4, 8)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [B 16 3 8 8]
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    shuffled = pixels[:, order].unflatten(1, (4, 4)).permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
    logits, of_shuffled = model(images()), model(shuffled)
    free = options["positions"] == "none" and options.get("attention") != "axial"  # which knows rows and columns
    apart = (logits - of_shuffled).abs().max()
    assert apart < 1e-5 if free else apart > 1e-3
    if free:
        features = [model.forward_features(each)[:, model.num_prefix_tokens :] for each in (images(), shuffled)]
        torch.testing.assert_close(features[0][:, order], features[1], atol=1e-5, rtol=0)


@some
def test_flops_are_as_many_as_the_formula_says(options):
    dim, n_patches, mlp = 16, 16, 24
    n_tokens = n_patches + (options.get("pool") != "gap")
    n_blocks, keys = (4, 4) if options.get("attention") == "axial" else (2, n_tokens)
    dense = 2 * n_tokens * (4 * dim * dim + 2 * dim * mlp)
    of_offsets = 2 * n_patches * (2 * n_patches - 1) * dim if options["positions"] == "relative" else 0
    block = dense + 2 * 2 * n_tokens * keys * dim + of_offsets
    with torch.device("meta"):
        model = variants.build(BODY | options)
    wanted = n_blocks * block + 2 * n_patches * 3 * 64 * dim + 2 * dim * 5
    assert zoo.forward_flops(model, torch.zeros(1, 3, 32, 32, device="meta")) == wanted


def test_the_plain_variant_is_the_plain_class_and_relative_positions_are_placed_in_every_block():
    model = zoo.create("Lab-Ti/8", positions="1d", placed="stem", attention="full", pool="class")
    assert type(model) is ViT and type(model.config) is ViTConfig
    assert zoo.create("lab-ti/8", positions="relative").config.placed == "every block"


@every
def test_all_weights_but_the_positions_are_the_plain_vit_s_and_no_global_state_is_touched(options):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model, again, other = (variants.build(BODY | options, seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    depth = len(model.blocks)
    plain = ViT(ViTConfig(**BODY | {"pool": options.get("pool", "class"), "depth": depth}), 3)
    own = dict(plain.named_parameters())
    for (name, value), same, differs in zip(
        model.named_parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(value, same)
        if "pos_embed" in name and name != "pos_embed":
            assert 0.01 < value.std() < 0.03 and not torch.equal(value, differs)
        else:
            _, _, rest = name.partition("blocks.")
            number, _, key = rest.partition(".")
            row = [n for n, _ in model.blocks.named_children()].index(number) if rest else 0
            assert torch.equal(value, own[f"blocks.{row}.{key}" if rest else name])
    new = [value.flatten() for name, value in model.named_parameters() if "pos_embed" in name]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(new, 2))


# ---- dropout, decay, gradients ----


@every
def test_every_parameter_gets_a_gradient(options):
    model = small(**options).train()
    model(images()).square().sum().backward()
    unread = "blocks.1.attn.offsets.pos_embed_offsets" if model.num_prefix_tokens else ""
    for name, parameter in model.named_parameters():  # of the last block the class token's query alone is read
        assert parameter.grad is not None and (name == unread or parameter.grad.abs().max() > 0), name


@pytest.mark.parametrize("placed", ["stem", "every block", "shared"])
def test_dropout_comes_after_the_first_positions_and_once(placed):
    model = variants.build(BODY | {"positions": "2d", "placed": placed, "dropout": 0.5})
    first = [model.pos_drop] + [block.pos_drop for block in model.blocks if isinstance(block, PlacedBlock)]
    assert sorted(drop.p for drop in first) == sorted([0.5] + [0.0] * (len(first) - 1))
    torch.manual_seed(0)
    model.train()
    x = model.sequence(model.patch_embed(images()))
    if placed != "stem":
        seen = []
        model.blocks[0].pos_drop.register_forward_hook(lambda module, inputs, output: seen.append(output))
        model.blocks[0](x)
        x = seen[0]
    share = (x == 0).float().mean()
    assert 0.4 < share < 0.6  # not before: then positions would stand in the dropped places


# ---- training ----


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("options", FULL, ids=name_of)
def test_training_for_the_class_token_alone_gives_the_logits_and_gradients_of_all_tokens(options, fused):
    model, x = small(**options).double(), images(dtype=torch.float64)
    for block in model.blocks:
        block.attn.fused_attn = fused

    def gradients(logits):
        return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()), materialize_grads=True)]

    whole, shapes = gradients(model.forward_head(model.forward_features(x))), []
    model.blocks[-1].mlp.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape[1]))
    torch.testing.assert_close(gradients(model(x)), whole, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(model.eval()(x), whole[0], atol=1e-11, rtol=1e-11)
    assert shapes == [1, 17]


@every
def test_a_block_at_some_tokens_is_the_block_there(options):
    model, at = small(**options), torch.tensor([[0, 5, 15], [3, 3, 1], [14, 0, 2]])
    x = torch.randn(3, 16 + model.num_prefix_tokens, 16)
    for block in model.blocks:
        wanted = torch.stack([each[rows] for each, rows in zip(block(x), at, strict=True)])
        torch.testing.assert_close(block(x, at), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [FULL[7], AXIAL[1]], ids=name_of)
def test_a_step_in_bfloat16_is_one_in_float32_but_for_rounding(options):
    model = small(**options).train()
    wanted = model(images())
    for fused in (True, False):
        for block in model.blocks:
            block.attn.fused_attn = fused
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images())
        assert (logits - wanted).abs().max() < 0.1 * wanted.abs().max()


# ---- another size, files ----


@every
def test_another_image_size_resizes_tables_or_says_that_it_cannot(options):
    model = small(**options).eval()
    same = with_new_head(model, 3)
    assert type(same) is type(model)
    torch.testing.assert_close(same.forward_features(images()), model.forward_features(images()), atol=1e-6, rtol=0)
    if options["positions"] == "relative":
        with pytest.raises(ValueError, match=r"relative positions of 4 x 4 patches cannot be resized to 6 x 6"):
            with_new_head(model, 3, image_size=48)
        return
    larger = with_new_head(model, 3, image_size=48)
    assert larger(images(size=48)).shape == (3, 3)
    if options["positions"] == "none":
        return
    block = 1 if options["placed"] == "every block" else None
    own, new = (positions.position_embeddings(each, block) for each in (model, larger))
    torch.testing.assert_close(new, resize_positions(own, (4, 4), (6, 6)), atol=1e-6, rtol=0)


@some
def test_what_is_saved_comes_back_with_its_settings(tmp_path, options):
    model = randomise(zoo.create("Lab-Mu/8", n_classes=3, **options))
    zoo.save(tmp_path / "model.safetensors", model, "Lab-Mu/8", {"steps": 1})
    loaded = zoo.load(tmp_path / "model.safetensors")
    assert type(loaded.model) is type(model) and loaded.model.config == model.config and loaded.name == "Lab-Mu/8"
    assert torch.equal(loaded.model(images()), model(images()))


# ---- analyses: captured, or refused with the reason ----


def test_axial_attention_is_not_captured():
    with pytest.raises(ValueError, match=r"block 0 has shape \[12, 2, 4, 4\], expected \[3, heads, 16, 16\]"):
        attention.attention_maps(small(**AXIAL[0]), images())


@pytest.mark.parametrize("options", [FULL[0], FULL[5], FULL[8], FULL[7] | {"pool": "gap"}], ids=name_of)
def test_analyses_capture_attention_exactly(options):
    model = small(**options).eval()
    wanted = open_attention(model, images())
    for fused in (True, False):
        for block in model.blocks:
            block.attn.fused_attn = fused
        for seen, attn in zip(attention.attention_maps(model, images()), wanted, strict=True):
            torch.testing.assert_close(seen, attn, atol=1e-5, rtol=0)
    rolled = rollout_from_maps(wanted, (4, 4), model.num_prefix_tokens)
    torch.testing.assert_close(rollout.attention_rollout(model, images()), rolled, atol=1e-5, rtol=0)


@every
def test_analyses_of_positions_give_what_is_added_or_the_reason(options):
    model = small(**options)
    if options["positions"] in ("none", "relative"):
        with pytest.raises(ValueError, match=f"no .*absolute position embeddings.*{options['positions']}"):
            positions.position_embeddings(model)
        return
    assert positions.position_grid(model) == (4, 4)
    if options["placed"] == "every block":
        with pytest.raises(ValueError, match=r"block None given.*name one, from 0 to"):
            positions.position_embeddings(model)
        tables = [positions.position_embeddings(model, block) for block in range(len(model.blocks))]
        assert not torch.equal(tables[0], tables[1])
    else:
        tables = [positions.position_embeddings(model)]
        with pytest.raises(ValueError, match="block 0 given"):
            positions.position_embeddings(model, 0)
    for table in tables:
        assert table.shape == (16, 16) and not table.requires_grad
        assert positions.position_similarity(table, (4, 4)).shape == (4, 4, 4, 4)


# ---- bad input ----


@pytest.mark.parametrize(
    "options, words",
    [
        ({"positions": "3d"}, r"positions '3d' is unknown; use one of 'none', '1d', '2d', 'relative'"),
        ({"positions": "none", "placed": "shared"}, r"placed 'shared' says nothing where positions is 'none'"),
        ({"positions": "relative", "placed": "stem"}, r"'relative' cannot be placed at the 'stem'.*'every block'"),
        ({"positions": "relative", "attention": "axial", "pool": "gap"}, r"'relative' are between all patches"),
        ({"attention": "axial"}, r"pool 'class' does not go with attention 'axial'.*use pool='gap'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        variants.build(BODY | options)
