"""The paper's claims under test, C01 to C21: what each says, where, and the paper's own number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper that can be true or false."""

    id: str
    statement: str
    where: str  # section, table or figure of the paper
    paper: str = ""  # the paper's number, "" where it gives a picture only

    def __str__(self) -> str:
        return f"{self.id}: {self.statement} ({self.where})"


_CLAIMS = (
    Claim(
        "C01",
        "ViT-B, L, H have 86, 307, 632 million parameters; at 224 px and patch 16 the sequence is 197.",
        "Table 1",
        "86M, 307M, 632M; 197 tokens",
    ),
    Claim("C02", "Equations 1 to 4 are the whole model.", "§3.1, Eq. 1–4"),
    Claim(
        "C03",
        "With little pre-training data a ResNet is ahead; with much data ViT overtakes it.",
        "§4.3, Fig. 3, 4",
    ),
    Claim("C04", "Larger ViTs need more data than smaller ones.", "§4.3, Fig. 3, Table 5"),
    Claim("C05", "ViT's few-shot accuracy keeps rising with pre-training data.", "§4.3, Fig. 4"),
    Claim("C06", "Hybrids are ahead of ViT at small compute, and the gap vanishes at large.", "§4.4, Fig. 5"),
    Claim("C07", "ViT reaches a ResNet's accuracy with 2 to 4 times less compute.", "§4.4, Fig. 5", "2–4×"),
    Claim("C08", "Fine-tuning at a higher resolution than pre-training helps.", "§3.2"),
    Claim(
        "C09",
        "No position embedding is clearly worse; 1-D, 2-D and relative are equal, wherever added.",
        "App. D.4, Table 8",
        "none 0.614; 1-D 0.642; 2-D 0.640; relative 0.640 (5-shot ImageNet, B/16)",
    ),
    Claim(
        "C10",
        "Position embeddings encode 2-D: near patches are more similar, rows and columns show.",
        "§4.5, Fig. 7 centre, Fig. 10",
    ),
    Claim(
        "C11",
        "The embedding filters' principal components look like a basis for fine structure within a patch.",
        "§4.5, Fig. 7 left",
    ),
    Claim(
        "C12",
        "Attention distance varies between the heads of the lowest layers and grows with depth.",
        "§4.5, Fig. 7 right, Fig. 11",
    ),
    Claim("C13", "Hybrids show less local attention in their lowest layers.", "§4.5, Fig. 7 right, Fig. 11"),
    Claim("C14", "The model attends to image regions that matter for the class.", "§4.5, Fig. 6, 14"),
    Claim(
        "C15",
        "Masked patch prediction beats training from scratch and stays below supervised pre-training.",
        "§4.6, App. B.1.2",
        "79.9 % ImageNet: +2 over scratch, −4 under supervised (B/16)",
    ),
    Claim(
        "C16",
        "A class token and global average pooling are equally good once the learning rate is tuned.",
        "App. D.3, Fig. 9",
    ),
    Claim("C17", "Adam is at least as good as SGD for pre-training ResNets.", "App. D.1, Table 7"),
    Claim(
        "C18",
        "Depth scales best and width least; smaller patches help without adding parameters.",
        "App. D.2, Fig. 8",
    ),
    Claim("C19", "Axial attention is more accurate and costs more compute.", "App. D.6, Fig. 13"),
    Claim("C20", "ViT is as fast as a comparable ResNet and uses memory more efficiently.", "App. D.5, Fig. 12"),
    Claim("C21", "ViT fine-tunes to a new task in few epochs.", "later reviews of §3.2"),
)

CLAIMS: Mapping[str, Claim] = MappingProxyType({claim.id: claim for claim in _CLAIMS})


def check(claim: str) -> Claim:
    """The claim with this id.

    Raises:
        ValueError: there is no such claim.

    >>> check("C07").paper
    '2–4×'
    >>> check("C99")
    Traceback (most recent call last):
    ValueError: unknown claim 'C99': expected one of C01 to C21
    """
    if claim not in CLAIMS:
        raise ValueError(f"unknown claim {claim!r}: expected one of {_CLAIMS[0].id} to {_CLAIMS[-1].id}")
    return CLAIMS[claim]
