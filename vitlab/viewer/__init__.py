"""The attention viewer: point at a patch and see where every head of every block looks (§4.5, Fig. 6, 7 right)."""

from vitlab.viewer.view import View, attention_view, fitting, view

__all__ = ["View", "attention_view", "fitting", "view"]
