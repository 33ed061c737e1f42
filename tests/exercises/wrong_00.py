"""Mistakes in notebook 00: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "no class token"): "n_tokens = (384 // 16) ** 2",
    (1, "patches along one side"): "n_tokens = 384 // 16 + 1",
    (2, "the order of the batch is forgotten"): """\
alone = scene(small, torch.tensor([1234]))[0][0]
batch = scene(small, torch.arange(1230, 1240))[0][4]
reversed_batch = scene(small, torch.arange(1239, 1229, -1))[0][4]
label = 1234 % 7""",
    (2, "the quotient for the remainder"): """\
alone = scene(small, torch.tensor([1234]))[0][0]
batch = scene(small, torch.arange(1230, 1240))[0][4]
reversed_batch = scene(small, torch.arange(1239, 1229, -1))[0][5]
label = 1234 // 7""",
    (2, "the same image, but another one"): """\
alone = batch = reversed_batch = scene(small, torch.tensor([7]))[0][0]
label = 1234 % 7""",
    (3, "starts where this training ends, and the next may not"): "test = image_set(small, 200, start=500)",
    (
        3,
        "another seed is another world",
    ): "test = image_set(World(n_classes=7, image_size=32, seed=6), 200, start=HELD_OUT)",
}
