"""Mistakes in notebook 05: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "multiply-adds taken for FLOPs"): """\
exaflops = vit_multiply_adds(224, 32, 1024, 24, 4096, 18_291) * 3 * 300e6 * 7 / 1e18""",
    (1, "the forward pass only"): """\
exaflops = vit_multiply_adds(224, 32, 1024, 24, 4096, 18_291) * 2 * 300e6 * 7 / 1e18""",
    (1, "patches of 16"): """\
exaflops = vit_multiply_adds(224, 16, 1024, 24, 4096, 18_291) * 2 * 3 * 300e6 * 7 / 1e18""",
    (2, "the ViT's FLOPs doubled, not the ResNet's"): """\
return 2 * vit_flops * epochs_vit / (resnet_published * epochs_resnet)""",
    (2, "no epochs"): "return vit_flops / (2 * resnet_published)",
    (2, "upside down"): "return 2 * resnet_published * epochs_resnet / (vit_flops * epochs_vit)",
    (3, "the accuracy for its logit"): "return 10 ** ((accuracy + 16) / 1.2 - (accuracy + 13) / 1.0)",
    (3, "the natural exponential for a decimal axis"): """\
logit = math.log(accuracy / (1 - accuracy))
return math.exp((logit + 16) / 1.2 - (logit + 13) / 1.0)""",
    (3, "one number for both accuracies"): "return 10 ** (16 / 1.2 - 13)",
    (4, "the MLP is forgotten"): """\
tokens = 2 * 768
pixels = 16 * math.ceil(math.sqrt(tokens))""",
    (4, "rounded down"): """\
tokens = 6 * 768
pixels = 16 * math.floor(math.sqrt(tokens))""",
    (4, "pixels as many as tokens"): """\
tokens = 6 * 768
pixels = 16 * tokens""",
}
