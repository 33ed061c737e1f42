"""Mistakes in notebook 01: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "no last LayerNorm"): """\
D = 384
answer = (768 * D + D) + D + 197 * D + 12 * (12 * D**2 + 13 * D) + (1000 * D + 1000)""",
    (1, "no position for the class token"): """\
D = 384
answer = (768 * D + D) + D + 196 * D + 12 * (12 * D**2 + 13 * D) + 2 * D + (1000 * D + 1000)""",
    (2, "the patch size of ViT-L/16"): "patch = 16",
    (3, "positions travel with their patches"): """\
z = torch.cat([class_token, embedded], dim=1) + w["pos_embed"] * positions
z = torch.cat([z[:, :1], z[:, 1:][:, order]], dim=1)
return model.head(model.norm(model.blocks(z))[:, 0])""",
    (3, "the class token keeps its position"): """\
z = torch.cat([class_token, embedded[:, order]], dim=1)
where = w["pos_embed"].clone()
where[:, 1:] *= positions
return model.head(model.norm(model.blocks(z + where))[:, 0])""",
    (3, "no last LayerNorm"): """\
z = torch.cat([class_token, embedded[:, order]], dim=1)
return model.head(model.blocks(z + w["pos_embed"] * positions)[:, 0])""",
    (4, "only the axis is right"): """\
T, D = q.shape
q = q.reshape(T, n_heads, D // n_heads).transpose(0, 1)
k = k.reshape(T, n_heads, D // n_heads).transpose(0, 1)
return (q @ k.transpose(1, 2) / math.sqrt(D)).softmax(dim=-1)""",
    (4, "only the scale is right"): """\
T, D = q.shape
q = q.reshape(T, n_heads, D // n_heads).transpose(0, 1)
k = k.reshape(T, n_heads, D // n_heads).transpose(0, 1)
return (q @ k.transpose(1, 2) / math.sqrt(D // n_heads)).softmax(dim=1)""",
    (4, "heads are cut from tokens"): """\
T, D = q.shape
q, k = (x.reshape(n_heads, T, D // n_heads) for x in (q, k))
return (q @ k.transpose(1, 2) / math.sqrt(D // n_heads)).softmax(dim=-1)""",
    (5, "no bias"): "return D * D\n---\nfirst_logit = 0.0",
    (5, "a probability for a logit"): "return D * D + D\n---\nfirst_logit = 1 / 5",
}
