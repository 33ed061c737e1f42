"""The models: the paper's ViT (`vit`), its ResNet baseline (`resnet`), and every model by name (`zoo`)."""
