"""Mistakes in notebook 04: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "the middle of the sizes, not of their logarithms"): """\
cross = 1_000 + 0.8 * 99_000
no_cross = None""",
    (1, "a line is continued where nothing was measured"): """\
cross = 1_000 * 100**0.8
no_cross = 1_000 * 100 ** (8 / 7)""",
    (2, "the best of the test set, again"): "return test.max(axis=1)",
    (2, "the best of the validation set"): "return validation.max(axis=1)",
    (2, "the mean of all evaluations, none chosen"): "return test.mean(axis=1)",
    (2, "the first evaluation, none chosen"): "return test[:, 0]",
    (2, "chosen by the test, reported from the validation"): """\
return validation[np.arange(len(test)), test.argmax(axis=1)]""",
    (2, "one evaluation for all studies"): "return test[:, validation.mean(axis=0).argmax()][:1]",
    (3, "the standard deviation of the population"): """\
d = a - b
half = scipy.stats.t.ppf(0.975, len(d) - 1) * d.std() / math.sqrt(len(d))
return d.mean() - half, d.mean() + half
---
n, pooled = len(a), (a.var() + b.var()) / 2
half = scipy.stats.t.ppf(0.975, 2 * n - 2) * math.sqrt(2 * pooled / n)
return (a - b).mean() - half, (a - b).mean() + half""",
    (3, "the normal's 1.96 for few seeds"): """\
d = a - b
half = 1.96 * d.std(ddof=1) / math.sqrt(len(d))
return d.mean() - half, d.mean() + half
---
half = 1.96 * math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))
return (a - b).mean() - half, (a - b).mean() + half""",
}
