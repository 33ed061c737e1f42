"""The ViT against known counts and Eq. 1-8 written out in float64; the authors' initialisation; tokens asked for."""

import math

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from weights import randomise

from vitlab.models.vit import ViT, ViTConfig

SMALL = {"image_size": 32, "patch_size": 8, "dim": 48, "depth": 3, "n_heads": 4, "mlp_dim": 80, "n_classes": 7}
TABLE_1 = {  # name: patch, dim, depth, heads, MLP, parameters, tokens
    "B/16": (16, 768, 12, 12, 3072, 86_567_656, 197),
    "L/16": (16, 1024, 24, 16, 4096, 304_326_632, 197),
    "H/14": (14, 1280, 32, 16, 5120, 632_045_800, 257),
}


def small(**changes) -> ViT:
    """A small ViT whose every weight is random, so that nothing is hidden by a zero or a one."""
    return randomise(ViT(ViTConfig(**{**SMALL, **changes})), 0.2)


def images(count: int = 3, size: int = 32, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(2), dtype=dtype)


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-6) * weight + bias


def open_coded(w: dict, image: torch.Tensor, config: ViTConfig) -> torch.Tensor:
    """Logits of one image [3 H W], line by line from Eq. 1-8, in loops and with no layer of PyTorch's."""
    P, D = config.patch_size, config.dim
    E = w["patch_embed.proj.weight"].reshape(D, -1).T  # (3 P P) x D
    corners = [(i, j) for i in range(0, config.image_size, P) for j in range(0, config.image_size, P)]
    patches = torch.stack([image[:, i : i + P, j : j + P].reshape(-1) for i, j in corners])
    z = patches @ E + w["patch_embed.proj.bias"]
    if config.pool == "class":
        z = torch.cat([w["cls_token"][0], z])
    z = z + w["pos_embed"][0]  # Eq. 1
    D_h = D // config.n_heads
    for block in range(config.depth):
        b = {key.removeprefix(f"blocks.{block}."): value for key, value in w.items()}
        y = layer_norm(z, b["norm1.weight"], b["norm1.bias"])
        U, u = b["attn.qkv.weight"], b["attn.qkv.bias"]
        q, k, v = (y @ U[i * D : (i + 1) * D].T + u[i * D : (i + 1) * D] for i in range(3))  # Eq. 5
        heads = []
        for h in range(config.n_heads):
            s = slice(h * D_h, (h + 1) * D_h)
            scores = torch.exp(q[:, s] @ k[:, s].T / math.sqrt(D_h))
            A = scores / scores.sum(1, keepdim=True)  # Eq. 6
            heads.append(A @ v[:, s])  # Eq. 7
        z = torch.cat(heads, 1) @ b["attn.proj.weight"].T + b["attn.proj.bias"] + z  # Eq. 8 and 2
        y = layer_norm(z, b["norm2.weight"], b["norm2.bias"]) @ b["mlp.fc1.weight"].T + b["mlp.fc1.bias"]
        y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
        z = y @ b["mlp.fc2.weight"].T + b["mlp.fc2.bias"] + z  # Eq. 3
    z = layer_norm(z, w["norm.weight"], w["norm.bias"])  # Eq. 4
    y = z[0] if config.pool == "class" else z.mean(0)
    if config.head == "tanh":
        y = torch.tanh(y @ w["pre_logits.fc.weight"].T + w["pre_logits.fc.bias"])
    return y @ w["head.weight"].T + w["head.bias"]


@pytest.mark.parametrize("name", TABLE_1)
def test_table_1_counts(name):
    patch, dim, depth, heads, mlp, n_parameters, n_tokens = TABLE_1[name]
    with torch.device("meta"):
        ours = ViT(ViTConfig(224, patch, dim, depth, heads, mlp))
        theirs = VisionTransformer(224, patch, embed_dim=dim, depth=depth, num_heads=heads)
    assert [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)] == [n_parameters, n_parameters]
    assert ours.pos_embed.shape == (1, n_tokens, dim)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}


@pytest.mark.parametrize("pool", ["class", "gap"])
@pytest.mark.parametrize("head", ["linear", "tanh"])
def test_equals_the_equations_in_float64(pool, head):
    model = small(pool=pool, head=head).double()
    x = images(dtype=torch.float64)
    expected = torch.stack([open_coded(model.state_dict(), image, model.config) for image in x])
    assert expected.std() > 0.1
    torch.testing.assert_close(model(x), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_fused_attention_equals_the_open_form(dtype, atol):
    model = ViT(ViTConfig(**SMALL)).eval()
    nn.init.normal_(model.head.weight, std=0.05, generator=torch.Generator().manual_seed(1))
    model = model.to(dtype)
    fused = model(images(dtype=dtype))
    assert fused.std() > 0.1
    for block in model.blocks:
        block.attn.fused_attn = False
    torch.testing.assert_close(model(images(dtype=dtype)), fused, atol=atol, rtol=0)


def test_dropout_is_where_the_paper_puts_it():
    model = ViT(ViTConfig(**SMALL, head="tanh", dropout=0.1))
    dropping = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p == 0.1]
    in_block = ["attn.proj_drop", "mlp.drop1", "mlp.drop2"]
    blocks = [f"blocks.{block}.{name}" for block in range(3) for name in in_block]
    assert dropping == ["pos_drop", *blocks, "pre_logits.drop"]
    assert [name for name, _ in model.blocks[0].mlp.named_children()] == ["fc1", "act", "drop1", "fc2", "drop2"]


def test_initialisation_is_the_authors():
    model = ViT(ViTConfig(224, 16, 256, 2, 4, 1024, 10, head="tanh"))
    block = model.blocks[1]
    bounds = {block.attn.qkv: 512, block.attn.proj: 512, block.mlp.fc1: 1280, block.mlp.fc2: 1280}
    for layer, fans in bounds.items():  # xavier uniform, with q, k and v as three layers
        bound = math.sqrt(6 / fans)
        assert 0.99 * bound < layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    for layer, fan_in in ((model.patch_embed.proj, 768), (model.pre_logits.fc, 256)):  # lecun normal, cut at 2 sigma
        assert layer.weight.std().item() == pytest.approx(fan_in**-0.5, rel=0.01)
        assert layer.weight.abs().max() <= 2 * fan_in**-0.5 / 0.8796
        assert not layer.bias.any()
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.02)
    assert block.mlp.fc1.bias.std().item() == pytest.approx(1e-6, rel=0.1)
    for zero in (model.cls_token, block.attn.qkv.bias, block.attn.proj.bias, model.head.weight, model.norm.bias):
        assert not zero.any()
    for one in (model.norm.weight, block.norm1.weight, block.norm2.weight):
        assert torch.equal(one, torch.ones(256))


def test_every_parameter_gets_a_gradient():
    for pool in ("class", "gap"):
        model = small(pool=pool, head="tanh").train()
        model(images()).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 30}, "image_size 30 is not divisible by patch_size 8; use 24 or 32"),
        ({"image_size": 5}, "image_size 5 is not divisible by patch_size 8; use 8"),
        ({"n_heads": 5}, "dim 48 is not divisible by n_heads 5; use a dim of 45 or 50"),
        ({"depth": 0}, "depth 0 is not possible"),
        ({"dropout": 1.0}, "dropout 1.0 is not a probability"),
    ],
)
def test_a_configuration_says_what_is_wrong_with_it(changes, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        ViTConfig(**{**SMALL, **changes})


@pytest.mark.parametrize("shape", [(2, 3, 40, 32), (2, 3, 16, 16), (2, 1, 32, 32), (2, 4, 32, 32)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"this model takes \[batch, 3, 32, 32\]"):
        small()(torch.zeros(shape))


@pytest.mark.parametrize("fused", [True, False])
def test_a_block_asked_for_some_tokens_gives_what_it_gives_of_all(fused):
    block = small(depth=1).blocks[0]
    block.attn.fused_attn = fused
    x, at = torch.randn(3, 17, 48, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 5], [16, 3], [2, 2]])
    torch.testing.assert_close(block(x, 2), block(x)[:, :2])
    torch.testing.assert_close(block(x, at), torch.stack([each[rows] for each, rows in zip(block(x), at, strict=True)]))


def test_in_training_the_last_block_computes_the_class_token_alone_where_it_is_ours():
    model = small(depth=2)
    x, shapes = torch.randn(3, 3, 32, 32), []
    model.blocks[-1].mlp.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape[1]))
    wanted = model.eval()(x)
    torch.testing.assert_close(model.train()(x), wanted)
    model.blocks[-1].attn.qkv = torch.nn.Sequential(model.blocks[-1].attn.qkv)  # as adapters of low rank wrap it
    torch.testing.assert_close(model(x), wanted)
    assert shapes == [17, 1, 17]
