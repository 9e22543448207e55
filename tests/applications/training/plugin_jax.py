"""An application for tests: a line that is fitted to points in JAX. Loaded as a plug-in."""

from deepbench.applications.training.application import Application, Metric, Rung


class Curve(Application):
    name = "curve"
    title = "A line"
    metric = Metric("error", higher_is_better=False, is_share=False)
    datasets = ()
    frameworks = ("jax",)
    rungs = {"mini": Rung("16 numbers", 8, 8 * 40, 8 * 10, 0.05)}

    def torch_task(self, setup, rung, data):
        raise NotImplementedError

    def jax_task(self, setup, rung, data):
        import numpy as np

        from deepbench.applications.training.jax_network import Initial
        from deepbench.applications.training.jax_optimizers import Adam
        from deepbench.applications.training.jax_task import JaxTask

        x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
        wanted = 2 * x + 0.5
        initial = Initial(setup.seed)
        initial.linear("line", 1, 1)

        def loss(net, data, at):
            return ((net.linear("line", net.dropout(data["x"][at], 0.1)) - data["wanted"][at]) ** 2).mean()

        def predict(net, data, at):
            return net.linear("line", data["x"][at])[:, 0]

        def grade(tests, answers):
            return float(np.abs(np.array(answers) - wanted[list(tests), 0]).mean())

        return JaxTask(
            setup, rung, initial, Adam(0.1), {"x": x, "wanted": wanted}, loss, len(x),
            predict, lambda rows: rows.tolist(), grade, len(x), learning_rate=lambda share: 1 - share,
        )  # fmt: skip


APPLICATION = Curve()
