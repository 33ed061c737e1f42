"""The claims under test: the paper's, C01 to C21, and two of later work, L01 and L02: what each says, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that can be true or false."""

    id: str
    short: str  # in at most six words, for tables
    statement: str
    where: str  # section, table or figure of the paper; of later work, which one
    paper: str = ""  # the paper's number, "" where it gives a picture only

    def __str__(self) -> str:
        return f"{self.id}: {self.statement} ({self.where})"


_CLAIMS = (
    Claim(
        "C01",
        "ViT's parameters and sequence length",
        "ViT-B, L, H have 86, 307, 632 million parameters; at 224 px and patch 16 the sequence is 197.",
        "Table 1",
        "86M, 307M, 632M; 197 tokens",
    ),
    Claim("C02", "Equations 1–4 are the whole model", "Equations 1 to 4 are the whole model.", "§3.1, Eq. 1–4"),
    Claim(
        "C03",
        "ViT overtakes ResNet with data",
        "With little pre-training data a ResNet is ahead; with much data ViT overtakes it.",
        "§4.3, Fig. 3, 4",
    ),
    Claim(
        "C04", "larger ViTs need more data", "Larger ViTs need more data than smaller ones.", "§4.3, Fig. 3, Table 5"
    ),
    Claim(
        "C05",
        "few-shot accuracy rises with data",
        "ViT's few-shot accuracy keeps rising with pre-training data.",
        "§4.3, Fig. 4",
    ),
    Claim(
        "C06",
        "hybrids lead at small compute",
        "Hybrids are ahead of ViT at small compute, and the gap vanishes at large.",
        "§4.4, Fig. 5",
    ),
    Claim(
        "C07",
        "ViT needs less compute than ResNet",
        "ViT reaches a ResNet's accuracy with 2 to 4 times less compute.",
        "§4.4, Fig. 5",
        "2–4×",
    ),
    Claim(
        "C08",
        "fine-tuning at higher resolution helps",
        "Fine-tuning at a higher resolution than pre-training helps.",
        "§3.2",
    ),
    Claim(
        "C09",
        "any position embedding beats none",
        "To have no position embedding is clearly worse; 1-D, 2-D and relative ones are equal, wherever added.",
        "App. D.4, Table 8",
        "none 0.614; 1-D 0.642; 2-D 0.640; relative 0.640 (5-shot ImageNet, B/16)",
    ),
    Claim(
        "C10",
        "position embeddings encode two dimensions",
        "Position embeddings encode 2-D: near patches are more similar, rows and columns show.",
        "§4.5, Fig. 7 centre, Fig. 10",
    ),
    Claim(
        "C11",
        "filters look like a basis",
        "The embedding filters' principal components look like a basis for fine structure within a patch.",
        "§4.5, Fig. 7 left",
    ),
    Claim(
        "C12",
        "attention distance grows with depth",
        "Attention distance varies between the heads of the lowest layers and grows with depth.",
        "§4.5, Fig. 7 right, Fig. 11",
    ),
    Claim(
        "C13",
        "hybrids attend less locally",
        "Hybrids show less local attention in their lowest layers.",
        "§4.5, Fig. 7 right, Fig. 11",
    ),
    Claim(
        "C14",
        "attention falls on the object",
        "The model attends to image regions that matter for the class.",
        "§4.5, Fig. 6, 14",
    ),
    Claim(
        "C15",
        "masked prediction beats no pre-training",
        "Masked patch prediction beats training from scratch and stays below supervised pre-training.",
        "§4.6, App. B.1.2",
        "79.9 % ImageNet: +2 over scratch, −4 under supervised (B/16)",
    ),
    Claim(
        "C16",
        "class token and pooling are equal",
        "A class token and global average pooling are equally good once the learning rate is tuned.",
        "App. D.3, Fig. 9",
    ),
    Claim(
        "C17",
        "Adam is no worse than SGD",
        "Adam is at least as good as SGD for pre-training ResNets.",
        "App. D.1, Table 7",
    ),
    Claim(
        "C18",
        "depth scales best, width least",
        "Depth scales best and width least; smaller patches help without adding parameters.",
        "App. D.2, Fig. 8",
    ),
    Claim(
        "C19",
        "axial attention: more accurate, costlier",
        "Axial attention is more accurate and costs more compute.",
        "App. D.6, Fig. 13",
    ),
    Claim(
        "C20",
        "ViT: fast as ResNet, less memory",
        "ViT is as fast as a comparable ResNet and uses memory more efficiently.",
        "App. D.5, Fig. 12",
    ),
    Claim(
        "C21",
        "fine-tuning takes few epochs",
        "ViT fine-tunes to a new task in few epochs.",
        "reviews of the paper, from Table 4",
    ),
)

CLAIMS: Mapping[str, Claim] = MappingProxyType({claim.id: claim for claim in _CLAIMS})

# What others found later about the paper's Fig. 7 (right). They count apart from the paper's claims.
_LATER = (
    Claim(
        "L01",
        "few labels: no local heads",
        "With labels alone and few images, heads of the lowest blocks do not become local.",
        "Raghu et al. 2021, arXiv:2108.08810",
    ),
    Claim(
        "L02",
        "masked prediction makes heads local",
        "Masked prediction makes heads of the lowest blocks local where labels do not.",
        "Park et al. 2023, arXiv:2305.00729",
    ),
)

LATER: Mapping[str, Claim] = MappingProxyType({claim.id: claim for claim in _LATER})
ALL: Mapping[str, Claim] = MappingProxyType({**CLAIMS, **LATER})


def check(claim: str) -> Claim:
    """The claim with this id.

    Raises:
        ValueError: there is no such claim.

    >>> check("C07").paper
    '2–4×'
    >>> check("C99")
    Traceback (most recent call last):
    ValueError: unknown claim 'C99': expected one of C01 to C21, L01, L02
    """
    if claim not in ALL:
        known = f"{_CLAIMS[0].id} to {_CLAIMS[-1].id}, {', '.join(LATER)}"
        raise ValueError(f"unknown claim {claim!r}: expected one of {known}")
    return ALL[claim]
