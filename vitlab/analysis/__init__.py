"""Analyses of attention, positions and filters of any plain ViT (§4.5)."""
