"""Mistakes in notebook 03: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "no class token"): """\
tokens_224, tokens_384 = (224 // 16) ** 2, (384 // 16) ** 2
factor = (tokens_384 / tokens_224) ** 2""",
    (1, "linear, not quadratic"): """\
tokens_224, tokens_384 = (224 // 16) ** 2 + 1, (384 // 16) ** 2 + 1
factor = tokens_384 / tokens_224""",
    (2, "corners not on corners"): """\
picture = table.T.reshape(1, -1, old, old)
larger = F.interpolate(picture, size=(new, new), mode="bilinear", align_corners=False)
return larger.flatten(2)[0].T""",
    (2, "right on the way in, scrambled on the way out"): """\
picture = table.T.reshape(1, -1, old, old)
larger = F.interpolate(picture, size=(new, new), mode="bilinear", align_corners=True)
return larger.reshape(new * new, -1)""",
    (2, "columns for rows"): """\
picture = table.reshape(old, old, -1).permute(2, 1, 0)[None]
larger = F.interpolate(picture, size=(new, new), mode="bilinear", align_corners=True)
return larger.flatten(2)[0].T""",
    (3, "the largest, not the largest in size"): """\
model.zero_grad()
F.cross_entropy(model(images), labels).backward()
return max(p.grad.max() for name, p in model.named_parameters() if not name.startswith("head.")).item()""",
    (3, "the head is counted in"): """\
model.zero_grad()
F.cross_entropy(model(images), labels).backward()
return max(p.grad.abs().max() for p in model.parameters()).item()""",
    (3, "gradients of two calls add up"): """\
F.cross_entropy(model(images), labels).backward()
body = [p.grad.abs().max() for name, p in model.named_parameters() if not name.startswith("head.")]
return max(body).item()""",
    (4, "no ridge"): "return X.T @ np.linalg.solve(X @ X.T, Y)",
    (4, "the ridge on every entry"): "return X.T @ np.linalg.solve(X @ X.T + ridge, Y)",
    (4, "weights of the images, not of the features"): "return np.linalg.solve(X @ X.T + ridge * np.eye(len(X)), Y)",
}
