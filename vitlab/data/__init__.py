"""Labelled images: the procedural world, public data sets, image folders, and batches of them (§4.1)."""
