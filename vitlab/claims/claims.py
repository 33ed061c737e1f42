"""The claims under test: C01 to C21 of the paper, L01 and L02 of later work; what each says, where it is judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that can be true or false."""

    id: str
    short: str  # in at most six words, for tables
    statement: str
    where: str  # section, table or figure of the paper; of later work, which one
    study: str  # whose evidence judges it: the only place where that is said
    notebook: str
    paper: str = ""  # the paper's number, "" where it gives a picture only
    condition: str = ""  # where it is not reproduced: under which condition the effect is there, or what it would take
    figure: str = ""  # of the notebook, that shows the condition


_ALL = (
    Claim(
        "C01",
        "ViT's parameters and sequence length",
        "ViT-B, L, H have 86, 307, 632 million parameters; at 224 px and patch 16 the sequence is 197.",
        "Table 1",
        "checks",
        "01_vit_from_scratch",
        paper="86M, 307M, 632M; 197 tokens",
        condition=(
            "Table 1 does not say what it counts. One reading gives all three of its numbers: with the hidden layer of "
            "the head for pre-training, without the classifier, and with patches of 16, 32 and 14 px."
        ),
        figure="parameters",
    ),
    Claim(
        "C02",
        "Equations 1–4 are the whole model",
        "Equations 1 to 4 are the whole model.",
        "§3.1, Eq. 1–4",
        "checks",
        "01_vit_from_scratch",
    ),
    Claim(
        "C03",
        "ViT overtakes ResNet with data",
        "With little pre-training data a ResNet is ahead; with much data ViT overtakes it.",
        "§4.3, Fig. 3, 4",
        "data_scaling",
        "04_data_scaling",
        condition=(
            "Of the smaller pair the ResNet's lead shrinks with more images and, few-shot, the ViT overtakes, as in the"
            " paper's figure. Of the larger pair, which is judged, the order is reversed; recipes tuned for the fewest "
            "images halve the ViT's lead there."
        ),
        figure="full_pairs",
    ),
    Claim(
        "C04",
        "larger ViTs need more data",
        "Larger ViTs need more data than smaller ones.",
        "§4.3, Fig. 3, Table 5",
        "data_scaling",
        "04_data_scaling",
        condition=(
            "In the runs of full the larger ViT is ahead at every number of images; with the fewest of quick neither "
            "is. It would take ViTs that are further apart in size than these two, as the paper's are; that was not "
            "tried."
        ),
        figure="full",
    ),
    Claim(
        "C05",
        "few-shot accuracy rises with data",
        "ViT's few-shot accuracy keeps rising with pre-training data.",
        "§4.3, Fig. 4",
        "data_scaling",
        "04_data_scaling",
        condition=(
            "The slope over the whole range is there in both blocks of seeds. Nearly all of the rise is where images "
            "are few; then the few-shot task is near its ceiling: a further rise would take classes that are harder to "
            "tell apart."
        ),
        figure="full",
    ),
    Claim(
        "C06",
        "hybrids lead at small compute",
        "Hybrids are ahead of ViT at small compute, and the gap vanishes at large.",
        "§4.4, Fig. 5",
        "compute_scaling",
        "05_compute_scaling",
        condition=(
            "Few-shot on other classes of the world, the hybrid is behind at all budgets, and the gap narrows. With an "
            "hour each, one seed, it learns more of CIFAR-10 than a ViT with masked pre-training: a figure of the "
            "notebook on training."
        ),
        figure="full",
    ),
    Claim(
        "C07",
        "ViT needs less compute than ResNet",
        "ViT reaches a ResNet's accuracy with 2 to 4 times less compute.",
        "§4.4, Fig. 5",
        "compute_scaling",
        "05_compute_scaling",
        paper="2–4×",
        condition=(
            "That the ViT needs less compute holds in both blocks of seeds. Whether half of the ResNet's is enough "
            "stays open: with each further set of seeds the factor has come nearer to two, and to tell it from two "
            "would take hundreds of them."
        ),
        figure="full",
    ),
    Claim(
        "C08",
        "fine-tuning at higher resolution helps",
        "Fine-tuning at a higher resolution than pre-training helps.",
        "§3.2",
        "transfer",
        "03_transfer",
    ),
    Claim(
        "C09",
        "any position embedding beats none",
        "To have no position embedding is clearly worse; 1-D, 2-D and relative ones are equal, wherever added.",
        "App. D.4, Table 8",
        "longer_positions position_variants",
        "11_design_choices",
        paper="none 0.614; 1-D 0.642; 2-D 0.640; relative 0.640 (5-shot ImageNet, B/16)",
        condition=(
            "Once trainings are long enough, none is behind in every task, and tables, of one dimension or two and "
            "wherever they are added, end alike; in shorter trainings they do not. Relative ones lag, the less the "
            "longer: still longer trainings were not tried."
        ),
        figure="positions_longer",
    ),
    Claim(
        "C10",
        "position embeddings encode two dimensions",
        "Position embeddings encode 2-D: near patches are more similar, rows and columns show.",
        "§4.5, Fig. 7 centre, Fig. 10",
        "local_heads",
        "07_position_embeddings",
    ),
    Claim(
        "C11",
        "filters look like a basis",
        "The embedding filters' principal components look like a basis for fine structure within a patch.",
        "§4.5, Fig. 7 left",
        "filters",
        "06_embedding_filters",
    ),
    Claim(
        "C12",
        "attention distance grows with depth",
        "Attention distance varies between the heads of the lowest layers and grows with depth.",
        "§4.5, Fig. 7 right, Fig. 11",
        "distances",
        "08_attention_distance",
    ),
    Claim(
        "C13",
        "hybrids attend less locally",
        "Hybrids show less local attention in their lowest layers.",
        "§4.5, Fig. 7 right, Fig. 11",
        "distances",
        "08_attention_distance",
    ),
    Claim(
        "C14",
        "attention falls on the object",
        "The model attends to image regions that matter for the class.",
        "§4.5, Fig. 6, 14",
        "rollout",
        "09_attention_rollout",
    ),
    Claim(
        "C15",
        "masked prediction beats no pre-training",
        "Masked patch prediction beats training from scratch and stays below supervised pre-training.",
        "§4.6, App. B.1.2",
        "masked_pretraining",
        "10_masked_patch_prediction",
        paper="79.9 % ImageNet: +2 over scratch, −4 under supervised (B/16)",
        condition=(
            "Masked prediction is ahead of training from scratch, and of pre-training on labels as well, which here are"
            " the ten classes of CIFAR-10. Whether labels of many more classes would win was tried with synthetic ones "
            "only: they do not."
        ),
        figure="arms",
    ),
    Claim(
        "C16",
        "class token and pooling are equal",
        "A class token and global average pooling are equally good once the learning rate is tuned.",
        "App. D.3, Fig. 9",
        "head_rates",
        "11_design_choices",
        condition=(
            "The class token's lead shrinks to a fraction of itself when the training is four times as long: equality "
            "may take trainings that are longer still; that was not tried."
        ),
        figure="heads",
    ),
    Claim(
        "C17",
        "Adam is no worse than SGD",
        "Adam is at least as good as SGD for pre-training ResNets.",
        "App. D.1, Table 7",
        "resnet_optimizers",
        "11_design_choices",
        condition=(
            "Before fine-tuning the two optimisers differ little with either ResNet, by numbers of the ledger; SGD's "
            "lead with the larger one comes with the fine-tuning that follows, which the figure shows."
        ),
        figure="optimizers",
    ),
    Claim(
        "C18",
        "depth scales best, width least",
        "Depth scales best and width least; smaller patches help without adding parameters.",
        "App. D.2, Fig. 8",
        "vit_shapes",
        "11_design_choices",
        condition=(
            "Smaller patches help, as in the paper. The deepest model and the one with the widest MLP end with a higher"
            " training loss than the base (under the figure): whether longer trainings would help was not tried."
        ),
        figure="shapes",
    ),
    Claim(
        "C19",
        "axial attention: more accurate, costlier",
        "Axial attention is more accurate and costs more compute.",
        "App. D.6, Fig. 13",
        "axial_attention",
        "11_design_choices",
        condition=(
            "Over the seeds axial attention costs more compute and is no more accurate than full attention of the same "
            "depth. Both are near the ceiling of the task: a harder one might tell them apart."
        ),
        figure="axial",
    ),
    Claim(
        "C20",
        "ViT: fast as ResNet, less memory",
        "ViT is as fast as a comparable ResNet and uses memory more efficiently.",
        "App. D.5, Fig. 12",
        "speed",
        "05_compute_scaling",
        condition=(
            "With the smallest input the ViT is within the factor of the ResNet's speed that the rule allows; as the "
            "input grows it falls behind, by a factor that depends on the processor. One core; the paper measured on "
            "TPUv3."
        ),
        figure="speed",
    ),
    Claim(
        "C21",
        "fine-tuning takes few epochs",
        "ViT fine-tunes to a new task in few epochs.",
        "reviews of the paper, from Table 4",
        "transfer",
        "03_transfer",
    ),
    Claim(
        "L01",
        "few labels: no local heads",
        "With labels alone and few images, heads of the lowest blocks do not become local.",
        "Raghu et al. 2021, arXiv:2108.08810",
        "local_heads",
        "08_attention_distance",
    ),
    Claim(
        "L02",
        "masked prediction makes heads local",
        "Masked prediction makes heads of the lowest blocks local where labels do not.",
        "Park et al. 2023, arXiv:2305.00729",
        "local_heads",
        "08_attention_distance",
    ),
)
ALL = {claim.id: claim for claim in _ALL}
CLAIMS = {name: claim for name, claim in ALL.items() if name.startswith("C")}  # the paper's
