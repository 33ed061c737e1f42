"""Mistakes in notebook 02: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "the logarithm of the mean, not the mean of the logarithms"): """\
first_loss = math.log(21_843)
half_right = -math.log(0.5 * 1 + 0.5 * 1e-3)""",
    (1, "the logarithm to base 2"): """\
first_loss = math.log2(21_843)
half_right = math.log(1000) / 2""",
    (2, "the mean of means, as given"): """\
chunks = [right[i : i + batch_size] for i in range(0, len(right), batch_size)]
return np.mean([chunk.mean() for chunk in chunks])""",
    (2, "the last batch is dropped"): """\
whole = right[: len(right) // batch_size * batch_size]
return whole.mean()""",
    (2, "every batch weighs as a full one"): """\
chunks = [right[i : i + batch_size] for i in range(0, len(right), batch_size)]
return sum(chunk.mean() * batch_size for chunk in chunks) / len(right)""",
    (3, "no correction for the start at zero"): """\
m = v = 0.0
for g in gradients:
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    w = w - rate * decay * w - rate * m / (math.sqrt(v) + eps)
return w""",
    (3, "decay inside the gradient: Adam with L2, not AdamW"): """\
m = v = 0.0
for t, g in enumerate(gradients, 1):
    g = g + decay * w
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    w = w - rate * (m / (1 - betas[0] ** t)) / (math.sqrt(v / (1 - betas[1] ** t)) + eps)
return w""",
    (3, "epsilon under the root"): """\
m = v = 0.0
for t, g in enumerate(gradients, 1):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    w = w - rate * decay * w - rate * (m / (1 - betas[0] ** t)) / math.sqrt(v / (1 - betas[1] ** t) + eps)
return w""",
    (3, "decay after the step"): """\
m = v = 0.0
for t, g in enumerate(gradients, 1):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    w = w - rate * (m / (1 - betas[0] ** t)) / (math.sqrt(v / (1 - betas[1] ** t)) + eps)
    w = w - rate * decay * w
return w""",
    (4, "the rate changes too"): """\
without = Recipe(steps=5, batch_size=32, learning_rate=2e-2, decay="constant")
with_warmup = Recipe(steps=5, batch_size=32, learning_rate=1e-2, decay="constant", warmup_steps=3)""",
    (4, "the rate is not constant"): """\
without = Recipe(steps=5, batch_size=32, learning_rate=2e-2)
with_warmup = dataclasses.replace(without, warmup_steps=3)""",
    (4, "no warm-up in either"): """\
without = Recipe(steps=5, batch_size=32, learning_rate=2e-2, decay="constant")
with_warmup = without""",
}
