"""Mistakes in notebook 10: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "bits for nats"): """\
_, counts = np.unique(codes, return_counts=True)
p = counts / counts.sum()
return float(-(p * np.log2(p)).sum())""",
    (1, "all colours alike"): "return math.log(len(np.unique(codes)))",
    (1, "counts for frequencies"): """\
_, counts = np.unique(codes, return_counts=True)
return float(-np.log(counts / counts.sum()).mean())""",
    (2, "the lower end of the range"): """\
red, rest = divmod(code, 64)
green, blue = divmod(rest, 8)
return tuple(32 * level for level in (red, green, blue))""",
    (2, "blue first"): """\
red, rest = divmod(code, 64)
green, blue = divmod(rest, 8)
return tuple(32 * level + 16 for level in (blue, green, red))""",
    (3, "reads what was written before"): """\
result = x.clone()
for patch, source in enumerate(plan.tolist()):
    if source == len(x):
        result[patch] = mask
    elif source != -1:
        result[patch] = result[source]
return result""",
    (3, "writes into what was given"): """\
before = x.clone()
for patch, source in enumerate(plan.tolist()):
    if source == len(x):
        x[patch] = mask
    elif source != -1:
        x[patch] = before[source]
return x""",
    (3, "no mask"): """\
result = x.clone()
for patch, source in enumerate(plan.tolist()):
    if source not in (-1, len(x)):
        result[patch] = x[source]
return result""",
    (4, "the first that is local, whether it stays or not"): """\
for number, row in enumerate(distances):
    if min(row) < limit:
        return number
return None""",
    (4, "always the same head"): """\
for number in range(len(distances)):
    if any(all(row[head] < limit for row in distances[number:]) for head in range(len(distances[0]))):
        return number
return None""",
    (4, "at the limit is local"): """\
found = None
for number in reversed(range(len(distances))):
    if min(distances[number]) > limit:
        break
    found = number
return found""",
    (4, "all heads"): """\
found = None
for number in reversed(range(len(distances))):
    if max(distances[number]) >= limit:
        break
    found = number
return found""",
    (5, "the loss over all patches"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 32).floor().long().flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, 1:] @ weight.T
return F.cross_entropy(logits.flatten(0, 1), codes.flatten())""",
    (5, "the class token dropped from the wrong end"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 32).floor().long().flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, :-1] @ weight.T
return F.cross_entropy(logits[plan != -1], codes[plan != -1])""",
    (5, "the loss over the patches with the mask alone"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 32).floor().long().flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, 1:] @ weight.T
masked = plan == plan.shape[1]
return F.cross_entropy(logits[masked], codes[masked])""",
    (5, "the loss without the patches that stay as they are"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 32).floor().long().flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, 1:] @ weight.T
changed = (plan != -1) & (plan != torch.arange(plan.shape[1]))
return F.cross_entropy(logits[changed], codes[changed])""",
    (5, "levels by rounding"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 255 * 7).round().long().flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, 1:] @ weight.T
return F.cross_entropy(logits[plan != -1], codes[plan != -1])""",
    (5, "levels by rounding to the nearest of nine"): """\
means = F.avg_pool2d(images.float(), side)
red, green, blue = (means / 32).round().long().clamp(max=7).flatten(2).unbind(1)
codes = 64 * red + 8 * green + blue
logits = tokens[:, 1:] @ weight.T
return F.cross_entropy(logits[plan != -1], codes[plan != -1])""",
}
