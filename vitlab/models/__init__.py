"""The models: the paper's ViT (`vit`), its ResNet baseline and hybrid (`convnets`), and every model by name (`zoo`)."""
