"""The paper's Vision Transformer, Eq. 1-8 (§3.1, App. A), under timm's names: weights move both ways."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn


def nearest_multiples(value: int, unit: int) -> str:
    """Name the multiples of `unit` on either side of `value`, for an error message."""
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else f"{unit}"


@dataclass(frozen=True)
class ViTConfig:
    """Everything that determines a ViT's architecture (Table 1; the default is ViT-B/16 at 224 px)."""

    image_size: int = 224  # pixels, height = width
    patch_size: int = 16  # pixels, P
    dim: int = 768  # width of a token, D
    depth: int = 12  # number of blocks, L
    n_heads: int = 12
    mlp_dim: int = 3072  # width of the MLP's hidden layer
    n_classes: int = 1000
    head: Literal["linear", "tanh"] = "linear"  # fine-tuning head; "tanh" is the pre-training head
    pool: Literal["class", "gap"] = "class"  # class token, or mean over patches and no class token (Fig. 9)
    dropout: float = 0.0  # probability of dropping, after every dense layer but q, k, v and after adding positions

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "dim", "depth", "n_heads", "mlp_dim", "n_classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not possible; it must be at least 1")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is not divisible by patch_size {self.patch_size}; "
                f"use {nearest_multiples(self.image_size, self.patch_size)}"
            )
        if self.dim % self.n_heads:
            raise ValueError(
                f"dim {self.dim} is not divisible by n_heads {self.n_heads}; "
                f"use a dim of {nearest_multiples(self.dim, self.n_heads)}, or another number of heads"
            )
        for name, known in (("head", ("linear", "tanh")), ("pool", ("class", "gap"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} {getattr(self, name)!r} is unknown; use {known[0]!r} or {known[1]!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout {self.dropout} is not a probability; use 0 <= dropout < 1")

    @property
    def n_patches(self) -> int:
        """Count the patches, N = HW / P², without a class token."""
        return (self.image_size // self.patch_size) ** 2


def check_images(images: Tensor, size: tuple[int, int]) -> None:
    """Raise ValueError where images are not [B, 3, *size]."""
    if tuple(images.shape[1:]) != (3, *size):
        raise ValueError(
            f"images of shape {tuple(images.shape)} given, but this model takes [batch, 3, {size[0]}, {size[1]}]; "
            "resize them, or build the model for another size"
        )


class PatchEmbed(nn.Module):
    """Cut the image into P × P patches and project each flattened patch to D: x_p E of Eq. 1.

    A convolution whose stride is its kernel size is that projection; E is its weight flattened, [D, 3·P·P].
    """

    def __init__(self, image_size: int, patch_size: int, dim: int) -> None:
        super().__init__()
        self.img_size, self.patch_size = (image_size, image_size), (patch_size, patch_size)
        self.grid_size = (image_size // patch_size, image_size // patch_size)
        self.proj = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        check_images(images, self.img_size)
        return self.proj(images).flatten(2).transpose(1, 2)  # [B D rows cols] -> [B N D], row by row


Queries = int | Int64[Tensor, "B t"] | None  # which tokens of each image are computed, see `Attention`


class Attention(nn.Module):
    """Multi-head self-attention, Eq. 5-8: A = softmax(q kᵀ / √D_h), output = U [A₁v₁; …; A_hv_h].

    With `fused_attn` (the default) PyTorch's fused kernel is used, which never forms A. Set it to False to
    compute A in the open: it passes through `attn_drop`, where a hook sees it, [batch, heads, query, key].

    `queries`: which tokens are computed, from all. None: every; n: the first n; a tensor [B t]: those at its positions.
    """

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim = n_heads, dim // n_heads
        self.scale = self.head_dim**-0.5
        self.fused_attn = True
        self.qkv = nn.Linear(dim, 3 * dim)  # the one dense layer the paper puts no dropout after
        self.attn_drop = nn.Dropout(0.0)  # the paper drops no attention weights; here for hooks, as in timm
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        B, T, D = x.shape
        heads = (self.num_heads, self.head_dim)
        if queries is None:
            q, k, v = self.qkv(x).reshape(B, T, 3, *heads).permute(2, 0, 3, 1, 4)  # Eq. 5; [3 B heads T D_h]
        else:
            (weight_q, weight_kv), (bias_q, bias_kv) = (p.split([D, 2 * D]) for p in (self.qkv.weight, self.qkv.bias))
            q = F.linear(take(x, queries), weight_q, bias_q).unflatten(2, heads).transpose(1, 2)  # [B heads t D_h]
            k, v = F.linear(x, weight_kv, bias_kv).reshape(B, T, 2, *heads).permute(2, 0, 3, 1, 4)
        x = self.attend(q, k, v).transpose(1, 2).flatten(2)  # [B heads t D_h] -> [B t D]: heads side by side
        return self.proj_drop(self.proj(x))  # Eq. 8

    def attend(
        self, q: Float[Tensor, "B H t d"], k: Float[Tensor, "B H T d"], v: Float[Tensor, "B H T d"]
    ) -> Float[Tensor, "B H t d"]:
        """Eq. 6 and 7: softmax(q kᵀ / √D_h) v."""
        if self.fused_attn:
            return F.scaled_dot_product_attention(q, k, v)
        attn = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)  # Eq. 6; [B heads query key]
        return self.attn_drop(attn) @ v  # Eq. 7


def take(x: Float[Tensor, "B T D"], queries: Queries) -> Float[Tensor, "B t D"]:
    """Take the tokens of every image that `queries` names, as in `Attention`."""
    if queries is None:
        return x
    return x[:, :queries] if isinstance(queries, int) else x.gather(1, queries[..., None].expand(-1, -1, x.shape[2]))


class Mlp(nn.Module):
    """Two dense layers with a GELU between them, the same for every token (§3.1)."""

    def __init__(self, dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, mlp_dim)
        self.act = nn.GELU()  # exact, not the tanh approximation
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(mlp_dim, dim)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class Block(nn.Module):
    """One pre-norm encoder block, Eq. 2 and 3."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=1e-6)
        self.attn = Attention(config.dim, config.n_heads, config.dropout)
        self.norm2 = nn.LayerNorm(config.dim, eps=1e-6)
        self.mlp = Mlp(config.dim, config.mlp_dim, config.dropout)

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        x = take(x, queries) + self.attn(self.norm1(x), queries)  # Eq. 2
        return x + self.mlp(self.norm2(x))  # Eq. 3


class ViT(nn.Module):
    """The Vision Transformer (§3.1, Fig. 1): images [B 3 H W], normalised, to logits [B n_classes].

    Every weight is drawn from `seed` alone; the global random state is neither used nor changed. `patch_embed` replaces
    the patch embedding: a module from images to tokens [B N D], initialised already, with `grid_size` (rows, columns).
    """

    def __init__(self, config: ViTConfig, seed: int = 0, patch_embed: nn.Module | None = None) -> None:
        super().__init__()
        self.config, self.embed_dim = config, config.dim
        self.num_prefix_tokens = 1 if config.pool == "class" else 0
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            self.patch_embed = patch_embed or PatchEmbed(config.image_size, config.patch_size, config.dim)
            rows, cols = self.patch_embed.grid_size
            self.cls_token = nn.Parameter(torch.zeros(1, 1, config.dim)) if config.pool == "class" else None
            self.pos_embed = nn.Parameter(torch.zeros(1, self.num_prefix_tokens + rows * cols, config.dim))
            self.pos_drop = nn.Dropout(config.dropout)
            self.blocks = nn.Sequential(*(Block(config) for _ in range(config.depth)))
            self.norm = nn.LayerNorm(config.dim, eps=1e-6)
            self.pre_logits: nn.Module = nn.Identity()
            if config.head == "tanh":  # pre-training (§3.1); dropout by the paper's rule, none in the authors' code
                parts = {"fc": nn.Linear(config.dim, config.dim), "act": nn.Tanh(), "drop": nn.Dropout(config.dropout)}
                self.pre_logits = nn.Sequential(OrderedDict(parts))
            self.head = nn.Linear(config.dim, config.n_classes)
        if not self.pos_embed.is_meta:  # on the meta device there is nothing to fill: shapes and counts only
            _init_weights(self, torch.Generator().manual_seed(seed), own_embed=patch_embed is None)

    def forward_features(self, images: Float[Tensor, "B C H W"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        """Compute the tokens after the last LayerNorm, the class token (if any) first: Eq. 1-3, the norm of Eq. 4."""
        return self.encode(self.sequence(self.patch_embed(images)), queries)

    def sequence(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B T D"]:
        """Make the encoder's input z₀ of the patches' embeddings x_p E: class token in front, positions added."""
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.pos_drop(x + self.pos_embed)  # Eq. 1

    def encode(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        """Apply all blocks and the last LayerNorm; the last block computes the tokens that `queries` names."""
        if queries is None:
            return self.norm(self.blocks(x))
        *first, last = self.blocks
        for block in first:
            x = block(x)
        return self.norm(last(x, queries))

    def forward_head(self, tokens: Float[Tensor, "B T D"], pre_logits: bool = False) -> Float[Tensor, "B K"]:
        """Compute logits from the class token or the mean over patches (Eq. 4); `pre_logits`: what the head reads."""
        x = self.pre_logits(tokens[:, 0] if self.config.pool == "class" else tokens.mean(dim=1))
        return x if pre_logits else self.head(x)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Compute logits; in training the last block computes the class token alone where the head reads nothing else.

        That saves a seventh of the work of 6 blocks; logits and gradients are the same but for rounding.
        """
        plain = type(self.blocks[-1].attn.qkv) is nn.Linear  # and no adapter in its place, whose weights are others
        queries = 1 if self.training and self.config.pool == "class" and plain else None
        return self.forward_head(self.forward_features(images, queries))


@torch.no_grad()
def _init_weights(model: ViT, generator: torch.Generator, own_embed: bool) -> None:
    """Initialise as the authors' code does (google-research/vision_transformer, vit_jax/models_vit.py)."""
    for name, parameter in model.named_parameters():
        if name.startswith("patch_embed.") and not own_embed:
            continue
        if name == "pos_embed":
            parameter.normal_(std=0.02, generator=generator)  # "from BERT", says the authors' code
        elif name.startswith("blocks.") and parameter.ndim == 2:
            # q, k and v are three dense layers there: the fan of each is D to D, not D to 3D as stored here.
            for weight in parameter.chunk(3) if name.endswith("qkv.weight") else [parameter]:
                nn.init.xavier_uniform_(weight, generator=generator)
        elif ".mlp." in name:
            parameter.normal_(std=1e-6, generator=generator)
        elif name in ("patch_embed.proj.weight", "pre_logits.fc.weight"):
            lecun_normal_(parameter, generator)  # flax's default for a layer with nothing said
        elif "norm" in name and name.endswith("weight"):
            parameter.fill_(1.0)
        else:
            parameter.zero_()  # the class token, all other biases, and the head: zero logits at the start


def lecun_normal_(weight: Tensor, generator: torch.Generator) -> None:
    """Normal of variance 1 / fan-in, cut at two standard deviations and rescaled for the cut, as in flax."""
    std = weight[0].numel() ** -0.5 / 0.87962566103423978
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)
