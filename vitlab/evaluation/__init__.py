"""What frozen features are worth: few-shot least squares and the linear probe (§4.1)."""
