"""The paper's hybrid (§3.1, "Hybrid Architecture"): a ViT whose patches are the positions of a ResNet's feature map."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.models.resnet import BiT, BiTConfig
from vitlab.models.vit import ViT, ViTConfig, _lecun_normal_

_RESNET, _PROJECTION = 1 << 20, 1 << 21  # each part's own stream of numbers: from one seed, they would draw the same


@dataclass(frozen=True, kw_only=True)
class HybridConfig(ViTConfig):
    """A ViT's configuration and its ResNet's; `patch_size` is the ResNet's total stride, in pixels of the image.

    Raises:
        ValueError: as for `ViTConfig` and `BiTConfig`, and for a `patch_size` that is not the ResNet's stride.

    >>> body = {"dim": 64, "depth": 4, "n_heads": 4, "mlp_dim": 256}
    >>> HybridConfig(image_size=32, patch_size=8, **body, width=8, layers=(1, 1, 2), stem_stride=2).n_patches
    16
    """

    width: int  # channels of the stem and the first stage
    layers: tuple[int, ...]  # residual blocks per stage
    stem_stride: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", tuple(self.layers))  # a list, as read from JSON, will do
        if self.patch_size != self.resnet.stride:
            raise ValueError(
                f"patch_size {self.patch_size} is not the total stride of a ResNet with stem_stride {self.stem_stride} "
                f"and {len(self.layers)} stages; use patch_size={self.resnet.stride}"
            )

    @property
    def resnet(self) -> BiTConfig:
        """The ResNet alone; its number of classes means nothing, for it has no head here."""
        return BiTConfig(self.width, self.layers, self.stem_stride, self.image_size)


def resnet_of_stride(stride: int) -> tuple[int, tuple[int, ...]]:
    """Stem stride and blocks per stage of the lab's ResNet of a total stride, in one of the paper's two kinds.

    The paper's ResNet-50, with a stem of stride 4, has (i) four stages, total stride 32, or (ii) no stage 4, whose
    layers are put into stage 3: stride 16, and a sequence four times as long. Here kind (i) has the multiples of 16
    and kind (ii) the other multiples of 4; with a stem of stride 2, half the paper's, they are at 16 and 8. At a
    total stride of 2 the layers of stage 3 are put into stage 2 as well.

    Raises:
        ValueError: for any other stride.

    >>> resnet_of_stride(16), resnet_of_stride(8), resnet_of_stride(2)
    ((2, (1, 1, 1, 1)), (2, (1, 1, 2)), (1, (1, 3)))
    """
    if stride != 2 and (stride < 4 or stride % 4):
        raise ValueError(f"no ResNet here has a total stride of {stride}; use 2, 4, 8, 12, 16 …")
    n_stages = 2 if stride == 2 else 3 if stride % 16 else 4
    return stride // 2 ** (n_stages - 1), (1,) * (n_stages - 1) + (5 - n_stages,)  # four blocks always


class ResNetEmbed(nn.Module):
    """Images [B 3 H W] to tokens [B N D]: the ResNet's last feature map, each position projected to D.

    Its parts are named as in timm's HybridEmbed; `patch_size` is in pixels of the image.

    >>> embed = ResNetEmbed(BiTConfig(width=8, layers=(1, 1, 2)), dim=64, seed=0)
    >>> embed(torch.zeros(5, 3, 32, 32)).shape, embed.grid_size, embed.patch_size
    (torch.Size([5, 16, 64]), (4, 4), (8, 8))
    """

    def __init__(self, config: BiTConfig, dim: int, seed: int) -> None:
        super().__init__()
        side, stride = config.image_size, config.stride
        self.img_size, self.patch_size = (side, side), (stride, stride)
        self.grid_size = (side // stride, side // stride)
        self.backbone = BiT(config, seed ^ _RESNET)
        self.backbone.head = nn.Identity()
        with torch.random.fork_rng(devices=[]):  # the constructor draws; those draws are thrown away
            self.proj = nn.Conv2d(self.backbone.num_features, dim, kernel_size=1)
        if not self.proj.weight.is_meta:
            with torch.no_grad():
                _lecun_normal_(self.proj.weight, torch.Generator().manual_seed(seed ^ _PROJECTION))
                self.proj.bias.zero_()  # type: ignore[union-attr]

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        expected = (3, *self.img_size)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"images of shape {tuple(images.shape)} given, but this model takes [batch, 3, "
                f"{self.img_size[0]}, {self.img_size[1]}]; resize them, or build the model for another size"
            )
        features = self.backbone.forward_features(images)
        return self.proj(features).flatten(2).transpose(1, 2)  # [B D rows cols] -> [B N D], row by row


class Hybrid(ViT):
    """R+ViT (§3.1): images [B 3 H W], normalised, to logits [B n_classes], by way of a ResNet (BiT).

    Every weight is drawn from generators seeded by `seed`; the global random state is neither used nor changed.

    >>> body = {"dim": 64, "depth": 2, "n_heads": 4, "mlp_dim": 256, "n_classes": 10}
    >>> model = Hybrid(HybridConfig(32, patch_size=8, **body, width=8, layers=(1, 1, 2), stem_stride=2))
    >>> model.forward_features(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 17, 64])
    """

    def __init__(self, config: HybridConfig, seed: int = 0) -> None:
        super().__init__(config, seed, patch_embed=ResNetEmbed(config.resnet, config.dim, seed))
