"""The convolutional baseline "ResNet (BiT)" and the hybrid R+ViT of §3.1 and §4.1, at lab size, on timm's parts."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from timm.layers import ClassifierHead, GroupNormAct, StdConv2d
from timm.models.resnetv2 import PreActBasic, ResNetStage
from torch import Tensor, nn

from vitlab.models.vit import ViT, ViTConfig, check_images, lecun_normal_

GROUP_SIZE = 8  # channels per GroupNorm group: BiT's 32 groups at 256 channels, where its first stage ends
RESNET_STREAM, PROJECTION_STREAM = 1 << 20, 1 << 21  # each part's own stream of numbers: from one seed not the same


@dataclass(frozen=True)
class BiTConfig:
    """Everything that determines a lab-size ResNet (BiT)'s architecture.

    Stage i has `layers[i]` blocks of `width · 2^i` channels. The stem and every stage but the first reduce
    the resolution, so the last feature map is `image_size / (stem_stride · 2^(stages - 1))` wide.
    """

    width: int  # channels of the stem and the first stage, a multiple of 8
    layers: tuple[int, ...]  # residual blocks per stage
    stem_stride: int = 2
    image_size: int = 32  # pixels, height = width
    n_classes: int = 10

    def __post_init__(self) -> None:
        if self.n_classes < 1:
            raise ValueError(f"n_classes {self.n_classes} is not possible; it must be at least 1")
        if self.image_size < self.stride:
            raise ValueError(
                f"image_size {self.image_size} is too small for a total stride of {self.stride} "
                f"(stem_stride {self.stem_stride}, {len(self.layers)} stages); use larger images or a smaller patch"
            )

    @property
    def stride(self) -> int:
        """Count the input pixels that one position of the last feature map stands for."""
        return self.stem_stride * 2 ** (len(self.layers) - 1)


class BiT(nn.Module):
    """A small ResNet (BiT): images [B 3 H W], normalised, to logits [B n_classes].

    As in the paper's: GroupNorm in place of BatchNorm, weight-standardised convolutions, pre-activation blocks. Unlike
    BiT, made for 224 px: blocks of two 3 × 3 convolutions (narrow bottlenecks are slow on a CPU), no max-pooling and,
    as for the ViT, a zero head. Images are not smaller than the total stride. Weights are drawn from `seed` alone.
    """

    def __init__(self, config: BiTConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        widths = [config.width * 2**i for i in range(len(config.layers))]
        self.num_features = widths[-1]
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            kernel_size = max(3, 2 * config.stem_stride - 1)  # odd; 7 × 7 at stride 4, so that fields overlap
            self.stem = StdConv2d(3, config.width, kernel_size, stride=config.stem_stride, padding=kernel_size // 2)
            self.stages = nn.Sequential()
            for i, (width, depth) in enumerate(zip(widths, config.layers, strict=True)):
                stage = ResNetStage(
                    widths[max(i - 1, 0)],
                    width,
                    stride=1 if i == 0 else 2,
                    dilation=1,
                    depth=depth,
                    bottle_ratio=1.0,
                    block_fn=PreActBasic,
                    act_layer=nn.ReLU,
                    conv_layer=Conv2d,
                    norm_layer=partial(GroupNormAct, group_size=GROUP_SIZE),
                )
                self.stages.append(stage)
            self.norm = GroupNormAct(widths[-1], group_size=GROUP_SIZE)  # followed by ReLU
            self.head: nn.Module = ClassifierHead(widths[-1], config.n_classes)  # mean over positions, then linear
        if not self.stem.weight.is_meta:  # on the meta device there is nothing to fill
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if parameter.ndim == 4:  # He's normal as in timm; standardised, so the scale hardly matters
                        nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu", generator=generator)
                    else:  # GroupNorm's gains are 1; biases and the head are 0
                        parameter.fill_(float(name.endswith("weight") and not name.startswith("head.")))

    def forward_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """Compute the last feature map, after the last norm and ReLU."""
        height, width = images.shape[2:]
        if images.shape[1] != 3 or min(height, width) < self.config.stride:
            raise ValueError(
                f"images of shape {tuple(images.shape)} given, but this model takes [batch, 3, H, W], "
                f"{self.config.stride} pixels a side or more"
            )
        return self.norm(self.stages(self.stem(images.contiguous(memory_format=torch.channels_last))))

    def forward_head(self, x: Float[Tensor, "B D h w"], pre_logits: bool = False) -> Float[Tensor, "B K"]:
        """Compute logits from the mean over positions; with `pre_logits` give that mean itself, [B D]."""
        return self.head(x, pre_logits=pre_logits)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.forward_head(self.forward_features(images))


class Conv2d(StdConv2d):
    """timm's weight-standardised convolution; one of 1 × 1 with a stride looks at the pixels that it takes, no others.

    The result is the same. oneDNN writes beyond its memory in the gradient of a channels-last 1 × 1 convolution of few
    channels with a stride, on a processor with AVX-512, where the threads do not divide the batch.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, **others) -> None:
        self.every = stride if kernel_size == 1 else 1  # pixels from one that is taken to the next
        super().__init__(in_channels, out_channels, kernel_size, stride=stride // self.every, **others)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        return super().forward(x[:, :, :: self.every, :: self.every])


class EarlyConvs(nn.Sequential):
    """Convolutions without norms in place of a ResNet: 3 × 3, stride 2, GELU, twice the channels each (Xiao 2021)."""

    def __init__(self, width: int, stride: int, seed: int) -> None:
        super().__init__()
        if stride.bit_count() != 1:
            raise ValueError(f"a stride of {stride} cannot be made of convolutions of stride 2; use 2, 4, 8, 16 …")
        widths = [width * 2**i for i in range(stride.bit_length() - 1)]
        self.num_features = widths[-1]
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]), torch.no_grad():  # the constructors' draws are thrown away
            for before, after in zip((3, *widths), widths, strict=False):
                conv = nn.Conv2d(before, after, 3, stride=2, padding=1)
                self.extend([conv, nn.GELU()])
                if not conv.weight.is_meta:
                    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu", generator=generator)
                    conv.bias.zero_()  # type: ignore[union-attr]

    def forward_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """Compute the last feature map."""
        return self(images.contiguous(memory_format=torch.channels_last))


@dataclass(frozen=True, kw_only=True)
class HybridConfig(ViTConfig):
    """A ViT's configuration and its ResNet's; `patch_size` is the ResNet's total stride, in pixels of the image."""

    width: int  # channels of the stem and the first stage
    layers: tuple[int, ...]  # residual blocks per stage; none: `EarlyConvs`
    stem_stride: int


class ResNetEmbed(nn.Module):
    """Images [B 3 H W] to tokens [B N D]: the last feature map of a ResNet or of `EarlyConvs`, each position projected.

    Its parts are named as in timm's HybridEmbed; `patch_size` is in pixels of the image.
    """

    def __init__(self, config: HybridConfig, seed: int) -> None:
        super().__init__()
        side, stride = config.image_size, config.patch_size
        if config.layers:
            resnet = BiTConfig(config.width, config.layers, config.stem_stride, side)
            stride = resnet.stride
            self.backbone: BiT | EarlyConvs = BiT(resnet, seed ^ RESNET_STREAM)
            self.backbone.head = nn.Identity()
        else:
            self.backbone = EarlyConvs(config.width, stride, seed ^ RESNET_STREAM)
        self.img_size, self.patch_size = (side, side), (stride, stride)
        self.grid_size = (side // stride, side // stride)
        with torch.random.fork_rng(devices=[]):  # the constructor draws; those draws are thrown away
            self.proj = nn.Conv2d(self.backbone.num_features, config.dim, kernel_size=1)
        if not self.proj.weight.is_meta:
            with torch.no_grad():
                lecun_normal_(self.proj.weight, torch.Generator().manual_seed(seed ^ PROJECTION_STREAM))
                self.proj.bias.zero_()  # type: ignore[union-attr]

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        check_images(images, self.img_size)
        return self.proj(self.backbone.forward_features(images)).flatten(2).transpose(1, 2)  # [B N D], row by row


class Hybrid(ViT):
    """R+ViT (§3.1): images [B 3 H W], normalised, to logits [B n_classes], by way of a ResNet (BiT)."""

    def __init__(self, config: HybridConfig, seed: int = 0) -> None:
        super().__init__(config, seed, patch_embed=ResNetEmbed(config, seed))
