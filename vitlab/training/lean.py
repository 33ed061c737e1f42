"""Faster training of a ViT: its last block computes only the tokens that are read, the class token for Eq. 4's head."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.models.axial import AxialAttention
from vitlab.models.relative import RelativeAttention
from vitlab.models.variants import PlacedBlock, Variant
from vitlab.models.vit import Attention, Block, ViT


@contextlib.contextmanager
def lean(model: nn.Module) -> Iterator[None]:
    """In the body, a `ViT` in training mode computes of its last block only the class token.

    Logits and gradients are the same but for rounding; of 12 blocks it saves a fourteenth of the work, of 6 a seventh.
    For the length of the body the last block and its attention have a `forward` of their own on the instance, so the
    model may be compiled or wrapped (DDP, FSDP) before the body or in it; parameters and state dict are untouched.

    In the body and in training mode, hooks on the last block and `forward_features` see the class token alone, and a
    hook on that block's `qkv` is not called; in evaluation mode all is as usual. Left as they are: models of other
    classes or with methods of their own, those with pool="gap", a last block or an attention that is not vit.py's or a
    variant's (App. D.4), and a model that is lean already.

    >>> import torch
    >>> from vitlab.models.vit import ViTConfig
    >>> model = ViT(ViTConfig(32, patch_size=8, dim=64, depth=2, n_heads=4, mlp_dim=256, n_classes=10))
    >>> with lean(model):
    ...     model.forward_features(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 1, 64])
    >>> model.forward_features(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 17, 64])
    """
    if not _reads_the_class_token_alone(model):
        yield
        return
    last = model.blocks[-1]
    last.forward = types.MethodType(_block, last)
    last.attn.forward = types.MethodType(_attention, last.attn)
    try:
        yield
    finally:
        del last.forward, last.attn.forward


def _reads_the_class_token_alone(model: nn.Module) -> bool:
    """Whether this is a ViT that does what vit.py or variants.py say: its head reads the class token alone."""
    if not (isinstance(model, ViT) and model.config.pool == "class" and isinstance(model.blocks[-1], Block)):
        return False
    last = model.blocks[-1]
    if type(getattr(last.attn, "qkv", None)) is not nn.Linear:
        return False
    # Classes may be subclasses (FSDP makes them), but their methods are to be the ones of vit.py.
    methods: list[tuple[nn.Module, type[nn.Module], str]]
    known_model, known_block, known_attention = _known(model, last)
    methods = [(model, known_model, name) for name in ("forward", "forward_features", "sequence", "forward_head")]
    methods += [(last, known_block, "forward"), (last.attn, known_attention, "forward")]
    return all(
        name not in vars(module) and getattr(type(module), name, None) is getattr(known, name)
        for module, known, name in methods
    )


def _known(model: ViT, last: Block) -> tuple[type[nn.Module], type[nn.Module], type[nn.Module]]:
    """Of the known classes those whose methods the model, its last block and its attention should have."""
    return (
        Variant if isinstance(model, Variant) else ViT,
        PlacedBlock if isinstance(last, PlacedBlock) else Block,
        RelativeAttention if isinstance(last.attn, RelativeAttention) else Attention,
    )


def _block(block: Block, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B t D"]:
    """`Block.forward`, in training for the class token alone: t = 1."""
    if isinstance(block, PlacedBlock):
        x = block.entered(x)
    if not block.training:
        return Block.forward(block, x)
    x = x[:, :1] + block.attn(block.norm1(x))
    return x + block.mlp(block.norm2(x))


def _attention(attention: Attention, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B t D"]:
    """`Attention.forward`, in training for the class token's query alone, t = 1."""
    if not attention.training:
        if isinstance(attention, RelativeAttention):
            return RelativeAttention.forward(attention, x)
        return Attention.forward(attention, x)
    return _attention_of(attention, x[:, :1], x, torch.zeros(len(x), 1, dtype=torch.long, device=x.device))


def block_at(block: Block, x: Float[Tensor, "B T D"], at: Int64[Tensor, "B t"]) -> Float[Tensor, "B t D"]:
    """What `block(x)` is at the tokens `at` of every image; other queries and their MLP are not computed.

    >>> import torch
    >>> from vitlab.models.vit import ViTConfig
    >>> block = Block(ViTConfig(32, patch_size=8, dim=64, depth=2, n_heads=4, mlp_dim=256, n_classes=10))
    >>> x, at = torch.randn(5, 17, 64), torch.tensor([[1, 7]]).expand(5, 2)
    >>> torch.allclose(block_at(block, x, at), block(x)[:, [1, 7]], atol=1e-6)
    True
    """
    wanted = at[..., None].expand(-1, -1, x.shape[2])
    if isinstance(block.attn, AxialAttention):  # lines in which no token is wanted are few
        return block(x).gather(1, wanted)
    if isinstance(block, PlacedBlock):
        x = block.entered(x)
    normed = block.norm1(x)
    x = x.gather(1, wanted) + _attention_of(block.attn, normed.gather(1, wanted), normed, at)
    return x + block.mlp(block.norm2(x))


def _attention_of(
    attention: Attention, queries: Float[Tensor, "B t D"], x: Float[Tensor, "B T D"], at: Int64[Tensor, "B t"]
) -> Float[Tensor, "B t D"]:
    """`Attention.forward` for the queries of the tokens `at`; keys and values are of every token."""
    B, T, D = x.shape
    t, heads = queries.shape[1], (attention.num_heads, attention.head_dim)
    (weight_q, weight_kv), (bias_q, bias_kv) = (p.split([D, 2 * D]) for p in (attention.qkv.weight, attention.qkv.bias))
    q = F.linear(queries, weight_q, bias_q).reshape(B, t, *heads).transpose(1, 2)  # [B heads t D_h]
    k, v = F.linear(x, weight_kv, bias_kv).reshape(B, T, 2, *heads).permute(2, 0, 3, 1, 4)  # [B heads T D_h] each
    bias = attention.bias_at(q, at, T) if isinstance(attention, RelativeAttention) else None
    if attention.fused_attn:
        x = F.scaled_dot_product_attention(q, k, v, bias, attention.attn_drop.p if attention.training else 0.0)
    else:
        logits = q * attention.scale @ k.transpose(-2, -1)
        attn = (logits if bias is None else logits + bias).softmax(dim=-1)  # [B heads t key]
        x = attention.attn_drop(attn) @ v
    x = x.transpose(1, 2).flatten(2)  # [B heads t D_h] -> [B t D]: heads side by side
    return attention.proj_drop(attention.proj(x))
