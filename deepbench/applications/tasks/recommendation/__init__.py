"""Recommendation: which film somebody rates next, with neural collaborative filtering (NeuMF; He and others, 2017)."""

from __future__ import annotations

from deepbench.applications.training.application import Application, Metric, Rung


class Recommendation(Application):
    """The share of users whose last film is among the ten best of a hundred, or of a thousand."""

    name = "recommendation"
    title = "Recommendation"
    metric = Metric("hit rate at 10")
    has_equal_samples = True
    datasets = ("movielens",)
    frameworks = ("torch", "jax")
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "NeuMF with 16 factors and layers of 64, 32 and 16",
            batch=1024,
            samples=1024 * 2300,
            every=1024 * 115,
            target=0.58,
            settings={"factors": 16, "layers": (64, 32, 16), "rate": 5e-3},
        ),
        "small": Rung(
            "NeuMF with 64 factors and layers of 256, 256, 128 and 64, as in MLPerf",
            batch=1024,
            samples=1024 * 3000,
            every=1024 * 200,
            target=0.56,
            settings={"factors": 64, "layers": (256, 256, 128, 64), "rate": 1e-3},
        ),
        "full": Rung(
            "NeuMF of 2018, with fewer users and films; target of small, not calibrated",
            batch=2048,
            samples=2048 * 1500,
            every=2048 * 100,
            target=0.56,
            settings={"factors": 64, "layers": (256, 256, 128, 64), "rate": 1e-3},
        ),
        "full-ml-20m": Rung(
            "NeuMF of 2018 on MovieLens 20M; the last film is among the ten best of 1,000",
            batch=2048,
            samples=2048 * 9700 * 10,
            every=2048 * 9700,
            target=0.635,
            settings={"factors": 64, "layers": (256, 256, 128, 64), "rate": 1e-3, "others": 999},
            datasets=("ml-20m",),
        ),
    }


APPLICATION = Recommendation()
