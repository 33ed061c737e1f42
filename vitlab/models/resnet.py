"""The paper's convolutional baseline "ResNet (BiT)" (§4.1) at lab size, on timm's parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from timm.layers import ClassifierHead, GroupNormAct, StdConv2d
from timm.models.resnetv2 import PreActBasic, ResNetStage
from torch import Tensor, nn

GROUP_SIZE = 8  # channels per GroupNorm group: BiT's 32 groups at 256 channels, where its first stage ends


@dataclass(frozen=True)
class BiTConfig:
    """Everything that determines a lab-size ResNet (BiT)'s architecture.

    Stage i has `layers[i]` blocks of `width · 2^i` channels. The stem and every stage but the first reduce
    the resolution, so the last feature map is `image_size / (stem_stride · 2^(stages - 1))` wide.

    Raises:
        ValueError: when a value is out of range, or the image is too small for the strides.

    >>> BiTConfig(width=24, layers=(2, 2, 2), stem_stride=2).stride
    8
    """

    width: int  # channels of the stem and the first stage, a multiple of 8
    layers: tuple[int, ...]  # residual blocks per stage
    stem_stride: int = 2
    image_size: int = 32  # pixels, height = width
    n_classes: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))  # a list, as read from JSON, will do
        if self.width < GROUP_SIZE or self.width % GROUP_SIZE:
            below = self.width // GROUP_SIZE * GROUP_SIZE
            hint = f"{below} or {below + GROUP_SIZE}" if below else f"{GROUP_SIZE}"
            raise ValueError(f"width {self.width} is not a multiple of {GROUP_SIZE}; use {hint}")
        if not self.layers or min(self.layers) < 1:
            raise ValueError(f"layers {self.layers} is not possible; give at least one block for every stage")
        for name in ("stem_stride", "image_size", "n_classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not possible; it must be at least 1")
        if self.image_size < self.stride:
            raise ValueError(
                f"image_size {self.image_size} is too small for a total stride of {self.stride} "
                f"(stem_stride {self.stem_stride}, {len(self.layers)} stages); use larger images, a smaller "
                "stem_stride or fewer stages"
            )

    @property
    def stride(self) -> int:
        """Input pixels that one position of the last feature map stands for."""
        return self.stem_stride * 2 ** (len(self.layers) - 1)


class BiT(nn.Module):
    """A small ResNet (BiT): images [B 3 H W], normalised, to logits [B n_classes].

    As in the paper's baseline: GroupNorm in place of BatchNorm, weight-standardised convolutions and
    pre-activation blocks. Unlike BiT, which is made for 224 px: blocks of two 3 × 3 convolutions (narrow
    bottlenecks are slow on a CPU), a stem without max-pooling and, as for the ViT, a head that starts at
    zero. Any image not smaller than the total stride will do. Activations are kept channels-last: faster.

    Every weight is drawn from a generator seeded with `seed`; the global random state is neither used nor
    changed.

    >>> model = BiT(BiTConfig(width=8, layers=(1, 1), stem_stride=2))
    >>> images = torch.zeros(5, 3, 32, 32)
    >>> model(images).shape, model.forward_features(images).shape
    (torch.Size([5, 10]), torch.Size([5, 16, 8, 8]))
    """

    def __init__(self, config: BiTConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        widths = [config.width * 2**i for i in range(len(config.layers))]
        self.num_features = widths[-1]
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            self.stem = _stem(config)
            self.stages = _stages(widths, config.layers)
            self.norm = GroupNormAct(widths[-1], group_size=GROUP_SIZE)  # followed by ReLU
            self.head: nn.Module = ClassifierHead(widths[-1], config.n_classes)  # mean over positions, then linear
        if not self.stem.weight.is_meta:  # on the meta device there is nothing to fill: shapes and counts only
            _init_weights(self, torch.Generator().manual_seed(seed))

    def forward_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """The last feature map, after the last norm and ReLU."""
        height, width = images.shape[2:]
        if images.shape[1] != 3 or min(height, width) < self.config.stride:
            raise ValueError(
                f"images of shape {tuple(images.shape)} given, but this model takes [batch, 3, H, W], "
                f"{self.config.stride} pixels a side or more"
            )
        x = self.stem(images.contiguous(memory_format=torch.channels_last))
        return self.norm(self.stages(x))

    def forward_head(self, x: Float[Tensor, "B D h w"], pre_logits: bool = False) -> Float[Tensor, "B K"]:
        """Logits from the mean over positions; with `pre_logits` that mean itself, [B D]."""
        return self.head(x, pre_logits=pre_logits)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.forward_head(self.forward_features(images))


class Conv2d(StdConv2d):
    """timm's weight-standardised convolution; one of 1 × 1 with a stride looks at the pixels that it takes, no others.

    The result is the same. What oneDNN does instead writes beyond its memory: the gradient of a channels-last 1 × 1
    convolution of few channels with a stride, on a processor with AVX-512, where the threads do not divide the batch.

    >>> convolution = Conv2d(8, 16, kernel_size=1, stride=2)
    >>> convolution(torch.zeros(5, 8, 4, 4)).shape
    torch.Size([5, 16, 2, 2])
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, **others) -> None:
        self.every = stride if kernel_size == 1 else 1  # pixels from one that is taken to the next
        super().__init__(in_channels, out_channels, kernel_size, stride=stride // self.every, **others)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        return super().forward(x[:, :, :: self.every, :: self.every])


def _stem(config: BiTConfig) -> StdConv2d:
    """One convolution: 3 × 3 at stride 1 and 2, wider above so that fields overlap (7 × 7 at stride 4)."""
    kernel_size = max(3, 2 * config.stem_stride - 1)
    padding = (kernel_size - 1) // 2
    return StdConv2d(3, config.width, kernel_size, stride=config.stem_stride, padding=padding)


def _stages(widths: Sequence[int], layers: Sequence[int]) -> nn.Sequential:
    """timm's pre-activation stages; all but the first halve the resolution."""
    stages, width_before = nn.Sequential(), widths[0]
    for i, (width, depth) in enumerate(zip(widths, layers, strict=True)):
        stage = ResNetStage(
            width_before,
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
        stages.append(stage)
        width_before = width
    return stages


@torch.no_grad()
def _init_weights(model: BiT, generator: torch.Generator) -> None:
    """Convolutions from He's normal as in timm (standardised, so the scale hardly matters); head at zero."""
    for name, parameter in model.named_parameters():
        if name.startswith("head."):
            parameter.zero_()
        elif parameter.ndim == 4:
            nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu", generator=generator)
        elif name.endswith("weight"):
            parameter.fill_(1.0)  # GroupNorm
        else:
            parameter.zero_()
