"""Rollout: closed forms, the matrix product, heads and discarding, models of every prefix, and masks."""

import pytest
import timm
import torch
from torch import Tensor, nn
from weights import rollout_from_maps

from vitlab.analysis.attention import attention_maps, n_prefix_tokens, read_weights, reads_class_token
from vitlab.analysis.rollout import attention_rollout, overlay, rollout_matrix, rollout_reducer

SMALL = {"img_size": 32, "embed_dim": 32, "num_heads": 2, "num_classes": 5}


def random_maps(n_tokens: int = 10, blocks: int = 5, batch: int = 3, heads: int = 2) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [(3 * torch.randn(batch, heads, n_tokens, n_tokens, generator=draw)).softmax(-1) for _ in range(blocks)]


class TestKnownAnswers:
    def test_identity_attention_known_answers(self):
        maps = [torch.eye(10).expand(2, 3, 10, 10)] * 6
        assert rollout_matrix(maps).equal(torch.eye(10).expand(2, 10, 10))
        assert rollout_from_maps(maps, (3, 3)).eq(0).all()  # all stays on the class token
        assert torch.allclose(rollout_from_maps(maps, (2, 5), n_prefix=0), torch.tensor(1 / 10))

    @pytest.mark.parametrize("blocks", [1, 4, 12])
    def test_uniform_attention_closed_form_known_answers(self, blocks):
        # (I/2 + U/2)^L = I/2^L + (1 - 1/2^L) U, because U·U = U
        maps = [torch.full((1, 2, 10, 10), 1 / 10)] * blocks
        wanted = torch.eye(10) / 2**blocks + (1 - 0.5**blocks) / 10
        torch.testing.assert_close(rollout_matrix(maps)[0], wanted)
        torch.testing.assert_close(rollout_from_maps(maps, (3, 3))[0].flatten(), wanted[0, 1:])

    def test_blocks_are_multiplied_in_order_known_answers(self):
        # The class token reads patch 1 in block 2, where patch 1 has read patch 2 in block 1: mass reaches patch 2.
        first, second = torch.eye(3), torch.eye(3)
        first[1], second[0] = torch.tensor([0.0, 0, 1]), torch.tensor([0.0, 1, 0])
        maps = [block[None, None] for block in (first, second)]
        assert rollout_from_maps(maps, (1, 2)).flatten().tolist() == [0.25, 0.25]
        assert rollout_from_maps(maps[::-1], (1, 2)).flatten().tolist() == [0.5, 0.0]

    def test_overlay_known_answers(self):
        rollout = torch.tensor([[[1.0, 3.0]], [[4.0, 2.0]]])
        exact = overlay(rollout, (2, 4), smooth=False)
        assert exact[0].tolist() == [[pytest.approx(1 / 3)] * 2 + [1.0] * 2] * 2
        assert exact[1].tolist() == [[1.0, 1.0, 0.5, 0.5]] * 2
        assert overlay(rollout, (2, 4))[1, 0].tolist() == [1.0, 0.875, 0.625, 0.5]
        assert overlay(torch.zeros(1, 2, 2), (4, 4)).eq(0).all()

    def test_overlay_divides_the_map_and_then_enlarges_it_known_answers(self):
        spot = torch.zeros(1, 3, 3)
        spot[0, 1, 1] = 0.5
        pixels = overlay(spot, (6, 6))  # the centres of pixels lie a quarter of a patch from those of patches
        assert pixels[0, 2:4, 2:4].tolist() == [[0.75**2] * 2] * 2
        assert pixels[0, 1, 2] == 0.75 * 0.25 and pixels[0, 0].eq(0).all()


class TestHeadsAndDiscarding:
    def test_discarding_drops_each_items_lowest_entries(self):
        attn = random_maps(blocks=1)[0]
        fused = attn.mean(1)
        wanted = []
        for item in fused.double():
            limit = item[:, 1:].flatten().sort().values[int(0.5 * 90)]
            cut = torch.cat([item[:, :1], item[:, 1:].where(item[:, 1:] >= limit, 0.0)], 1) + torch.eye(10)
            wanted.append((cut / cut.sum(1, keepdim=True))[0, 1:])
        found = rollout_from_maps([attn], (3, 3), discard_ratio=0.5)
        torch.testing.assert_close(found.flatten(1).double(), torch.stack(wanted), atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("fusion", ["mean", "max", "min"])
    def test_blocks_of_heads_give_the_same(self, fusion):
        maps = random_maps(heads=5)
        update, finish = rollout_reducer((3, 3), 1, torch.eye(10)[:1].expand(len(maps[0]), -1), fusion)
        for block, attn in enumerate(maps):
            for part in attn.split(2, dim=1):
                update(block, part)
        torch.testing.assert_close(finish(), rollout_from_maps(maps, (3, 3), head_fusion=fusion))


FAMILIES = [  # name, options, does the head read the class token
    ("vit_tiny_patch16_224", {}, True),
    ("vit_tiny_patch16_224", {"global_pool": "avg"}, False),
    ("vit_tiny_patch16_224", {"global_pool": "map"}, False),
    ("vit_tiny_patch16_224", {"use_naflex": True}, True),
    ("vit_tiny_patch16_224", {"use_naflex": True, "global_pool": "avg"}, False),
    ("deit_tiny_distilled_patch16_224", {}, True),
    ("vit_small_patch14_reg4_dinov2", {"img_size": 28}, True),
    ("vit_small_patch16_dinov3", {}, False),
    ("vit_small_patch16_dinov3", {"global_pool": "token"}, True),
    ("beit_base_patch16_224", {}, False),
    ("beit_base_patch16_224", {"global_pool": "token"}, True),
    ("eva02_tiny_patch14_224", {"img_size": 28}, False),
    ("vit_base_patch16_siglip_224", {}, False),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "options", "from_class"), FAMILIES)
def test_rollout_starts_where_the_gradient_of_the_logits_says_that_the_head_reads(name, options, from_class):
    torch.manual_seed(0)
    model = timm.create_model(name, depth=2, **{**SMALL, **options}).eval()
    for key, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.3) if "attn" in key or "head" in key else None
    side = options.get("img_size", 32)
    images = torch.randn(2, 3, side, side)
    tokens = model.forward_features(images).detach().requires_grad_()
    model.forward_head(tokens).square().sum().backward()
    read, n_prefix = tokens.grad.abs().amax((0, 2)) > 0, n_prefix_tokens(model)
    assert bool(read[n_prefix:].any()) == (not from_class) and (not from_class or bool(read[0]))
    assert reads_class_token(model) == from_class
    torch.testing.assert_close(read.float() > 0, (read_weights(model, images) > 0).any(0))

    weights = torch.zeros(2, tokens.shape[1])
    weights[:, : 1 + ("distilled" in name)] = 1  # its two heads are averaged
    if (pool := getattr(model, "attn_pool", None)) is not None:  # softmax(q kᵀ / √d) of the latent, by hand
        x = tokens.detach()[:, 0 if model.pool_include_prefix else n_prefix :]
        q = pool.q(pool.latent).unflatten(-1, (pool.num_heads, -1)).transpose(1, 2)
        k = pool.kv(x).unflatten(-1, (2, pool.num_heads, -1))[:, :, 0].transpose(1, 2)
        weights.zero_()[:, -x.shape[1] :] = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1).mean((1, 2))
    elif not from_class:
        weights = (torch.arange(tokens.shape[1]) >= n_prefix).float().expand(2, -1)

    def from_there(matrix):
        row = weights[:, None].to(matrix) @ matrix / weights.sum(1)[:, None, None]
        return row[:, 0, n_prefix:]

    identity, captured = torch.eye(tokens.shape[1]), attention_maps(model, images)
    for fusion in ("mean", "max"):
        product = identity.double()
        for attn in captured:
            mixed = (attn.double().mean(1) if fusion == "mean" else attn.double().amax(1)) + identity
            product = mixed / mixed.sum(-1, keepdim=True) @ product
        found = attention_rollout(model, images, head_fusion=fusion).flatten(1).double()
        torch.testing.assert_close(found, from_there(product), atol=1e-6, rtol=1e-5)


def test_maps_captured_under_autocast_are_multiplied_in_their_own_precision():
    torch.manual_seed(0)
    model, images = timm.create_model("vit_tiny_patch16_224", depth=4, **SMALL).eval(), torch.randn(2, 3, 32, 32)
    for block in model.blocks:
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        maps, rollout = attention_maps(model, images), attention_rollout(model, images)
    assert rollout.dtype == torch.float32
    torch.testing.assert_close(rollout, rollout_from_maps(maps, (2, 2)), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"discard_ratio": 1.0}, "discard_ratio 1.0 given"),
        ({"head_fusion": "median"}, "'median' given, expected one of mean, max, min"),
    ],
)
def test_options_that_are_none(option, message):
    with pytest.raises(ValueError, match=message):
        rollout_from_maps(random_maps(), (3, 3), **option)


def test_what_lies_beyond_a_padded_image_is_cut_off():
    model = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True, dynamic_img_pad=True, **SMALL).eval()
    rollout = attention_rollout(model, torch.randn(1, 3, 40, 60))
    cut = overlay(rollout, (40, 60), smooth=False, stride=(16, 16))
    assert rollout.shape == (1, 3, 4) and torch.equal(cut, overlay(rollout, (48, 64), smooth=False)[:, :40, :60])
