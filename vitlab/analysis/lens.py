"""What the head makes of single patches, and whether what a map marks matters to the answer (§4.5, Fig. 6)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


@torch.no_grad()
def logit_lens(model: nn.Module, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B blocks tokens classes"]:
    """Apply a model's last norm and head, in eval mode, to every token after every block: what each would answer.

    The class token after the last block gives the model's own logits. Raises ValueError for a model without a linear
    head, or whose head reads more than the class token.
    """
    parts, tokens = (getattr(model, "blocks", ()), getattr(model, "head", None)), list[Tensor]()
    if not parts[0] or not isinstance(parts[1], nn.Linear) or hasattr(model, "head_dist"):
        raise ValueError("no blocks with one linear head that reads a token; give a ViT classifier with a class token")
    handles = [block.register_forward_hook(lambda _, args, out: tokens.append(out)) for block in model.blocks]
    try:
        logits = model(images)
    finally:
        for handle in handles:
            handle.remove()
    shape = tokens[0].shape[:2]
    single = [model.norm(each).flatten(0, 1)[:, None] for each in tokens]  # [B·T 1 D]
    found = torch.stack([model.forward_head(each).unflatten(0, shape) for each in single], 1)
    if not torch.allclose(found[:, -1, 0], logits, atol=1e-3):
        raise ValueError("the head reads more than one token; give a classifier with a class token")
    return found


def greyed(
    images: Float[Tensor, "B 3 H W"], maps: Float[Tensor, "B rows cols"], share: float, largest: bool = True
) -> Float[Tensor, "B 3 H W"]:
    """Put the `share` of patches with the map's largest values, or the smallest, in each image's mean colour."""
    count = max(1, round(share * maps[0].numel()))
    chosen = torch.zeros_like(maps.flatten(1)).scatter(1, maps.flatten(1).topk(count, 1, largest).indices, 1.0)
    mask = nn.functional.interpolate(chosen.view_as(maps)[:, None], images.shape[-2:], mode="nearest-exact")
    return torch.where(mask > 0, images.mean((2, 3), keepdim=True), images)


@torch.no_grad()
def kept_probability(
    model: nn.Module, images: Float[Tensor, "B 3 H W"], maps: Float[Tensor, "B rows cols"], share: float, largest=True
) -> Float[Tensor, " B"]:
    """Compute the probability that remains of each image's answer once patches are `greyed`, over what it was.

    A map that marks what matters leaves less than random maps do, and its smallest values leave more.
    """
    whole = model(images).softmax(-1)
    best = whole.argmax(1, keepdim=True)
    left = model(greyed(images, maps, share, largest)).softmax(-1)
    return (left.gather(1, best) / whole.gather(1, best))[:, 0]
