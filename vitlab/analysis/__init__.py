"""What a trained Vision Transformer has learned: filters, positions, attention distance, rollout (§4.5)."""
