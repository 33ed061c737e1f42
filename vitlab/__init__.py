"""vitlab: "An Image Is Worth 16x16 Words" (Dosovitskiy et al., ICLR 2021) as a working laboratory."""

__version__ = "0.2.0"
