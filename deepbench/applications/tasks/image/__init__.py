"""Image recognition: pictures of clothes in ten classes, or photographs of ImageNet, with a residual network (He and
others, 2015).
"""

from __future__ import annotations

from deepbench.applications.training.application import Application, Metric, Rung


class Image(Application):
    """Which of ten kinds of clothes a picture shows, or which of 1,000 classes of ImageNet."""

    name = "image"
    title = "Image recognition"
    metric = Metric("accuracy")
    has_equal_samples = True
    datasets = ("fashion-mnist",)
    frameworks = ("torch", "jax")
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "a residual network of 8 layers with 16 to 64 channels",
            batch=256,
            samples=184_320,
            every=15_360,
            target=0.90,
            settings={"widths": (16, 32, 64), "blocks": 1, "rate": 0.2},
        ),
        "small": Rung(
            "a residual network of 14 layers with 32 to 128 channels",
            batch=256,
            samples=921_600,
            every=61_440,
            target=0.925,
            settings={"widths": (32, 64, 128), "blocks": 2, "rate": 0.2},
        ),
        "full": Rung(
            "ResNet-50 v1.5, pictures enlarged to 224 × 224; target of small, not calibrated",
            batch=256,
            samples=921_600,
            every=61_440,
            target=0.925,
            settings={"model": "resnet50", "rate": 0.1},
        ),
        "full-imagenet": Rung(
            "ResNet-50 v1.5, photographs of ImageNet at 224 × 224, 90 epochs",
            batch=256,
            samples=256 * 5005 * 90,
            every=256 * 5005 * 5,
            target=0.749,
            settings={"model": "resnet50", "rate": 0.1},
            datasets=("imagenet",),
        ),
    }


APPLICATION = Image()
