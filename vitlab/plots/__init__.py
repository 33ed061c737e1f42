"""Every figure's drawing: arrays in, axes out, in one colour-blind-safe style (the paper's figures and appendix D)."""

from vitlab.plots.style import COLOURS, MUTED, paper_line, style

__all__ = ["COLOURS", "MUTED", "paper_line", "style"]
