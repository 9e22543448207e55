"""Compare predicted servers of language models with measured ones, group by group, and with NVIDIA's AIConfigurator.

The measured servers are the rows of `aiconfigurator-core` that serve prompts and decoding on the same GPUs, of models
that we have. A group is a model on a GPU. For each group the constants of the model are fitted to all other groups, so
no error below is that of a row, or of a twin of it, which the constants have seen.

    pip install -e ".[gpus]"
    python benchmarks/deployments.py                      # prints the tables
    python benchmarks/deployments.py --peer predictions.jsonl
    python benchmarks/deployments.py --peer predictions.jsonl --write

`--peer` names the output of benchmarks/aiconfigurator_rows.py, which runs in an environment of its own. `--write`
writes docs/deployments.md, and the constants that `deepbench predict --on` uses. The first run takes some minutes,
because the models of the kernels are fitted; later ones take half a minute.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np

from deepbench.core.errors import BadInput
from deepbench.gpus.index import version
from deepbench.gpus.serving import server
from deepbench.gpus.serving.deployments import Deployment, deployments
from deepbench.gpus.serving.server import ServerSetup, Steps

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "deployments.md"
CONSTANTS = ROOT / "deepbench" / "gpus" / "serving" / "constants.json"

DENSE = ("llm/llama31_70b", "mlperf/llama31_8b", "llm/qwen3_32b")


def planned() -> tuple[list[Deployment], list[Steps], Counter[str]]:
    """The rows with the times of their steps, and why others are left out."""
    rows: list[Deployment] = []
    setups: list[ServerSetup] = []
    out: Counter[str] = Counter()
    for row in deployments():
        setup = ServerSetup.of(row)
        try:
            if setup.room_bytes <= 0:
                out["weights that do not fit into the memory of the stated GPUs"] += 1
                continue
        except BadInput as error:
            out[str(error)] += 1
            continue
        if row.first_token_s > 15 and row.model == "openai/gpt-oss-120b":
            out["gpt-oss with more than 15 s to the first token, faster per token than with fewer requests"] += 1
            continue
        rows.append(row)
        setups.append(setup)
    steps = server.steps_of(setups)
    whole = [not any(np.isnan(v) for step in (s.decode, s.prompt) for v in step.seconds.values()) for s in steps]
    out["a kernel without any published time"] += whole.count(False)
    return (
        [row for row, ok in zip(rows, whole, strict=True) if ok],
        [s for s, ok in zip(steps, whole, strict=True) if ok],
        +out,
    )


def error_text(predicted: np.ndarray, measured: np.ndarray) -> str:
    """`9.8 / 15.2`: median and mean of the relative errors, in percent."""
    errors = np.abs(predicted / measured - 1)
    return f"{100 * np.median(errors):.1f} / {100 * errors.mean():.1f}" if len(errors) else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="predictions of AIConfigurator, as aiconfigurator_rows.py prints them")
    parser.add_argument("--write", action="store_true", help="write docs/deployments.md and the constants")
    options = parser.parse_args()
    rows, steps, out = planned()
    token = np.array([row.token_s for row in rows])
    first = np.array([row.first_token_s for row in rows])
    groups = [f"{row.suite} {row.machine}" for row in rows]
    found = server.held_out(steps, token, first, groups)
    peer = peer_times(rows, options.peer)
    lines = page(rows, token, first, found, peer, out)
    print("\n".join(lines))
    if options.write:
        PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")
        fitted = server.fit(steps, token, first)
        names = np.array(groups)
        intervals = [server.quantiles(names, m / p) for m, p in ((token, found.token_s), (first, found.first_s))]
        kept = {
            "source": f"{len(rows)} deployments of aiconfigurator-core {version()}, {len(set(groups))} groups",
            "machines": sorted({row.machine for row in rows}),
            "token_terms": [f"{term.name} ({term.unit})" for term in server.TOKEN_TERMS],
            "first_terms": [f"{term.name} ({term.unit})" for term in server.FIRST_TERMS],
            "token_interval": [round(end, 4) for end in intervals[0]],
            "first_interval": [round(end, 4) for end in intervals[1]],
            "token": fitted.token,
            "first": fitted.first,
        }
        CONSTANTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def peer_times(rows: list[Deployment], path: str | None) -> np.ndarray:
    """AIConfigurator's times per output token and to the first token; NaN where it has no answer."""
    known: dict[str, tuple[float, float]] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines() if path else ():
        answer = json.loads(line)
        if "tpot_ms" in answer:
            known[answer["id"][:200]] = (answer["tpot_ms"] * 1e-3, answer["ttft_ms"] * 1e-3)
    return np.array([known.get(row.name, (np.nan, np.nan)) for row in rows])


def page(
    rows: list[Deployment],
    token: np.ndarray,
    first: np.ndarray,
    found: server.HeldOutServers,
    peer: np.ndarray,
    out: Counter[str],
) -> list[str]:
    """The page, line by line."""
    dense = np.array([row.suite in DENSE for row in rows])
    answered = ~np.isnan(peer[:, 0])
    corrected = sum(row.is_corrected for row in rows)
    lines = [
        "# Predicted and measured deployments",
        "",
        "`python benchmarks/deployments.py --peer predictions.jsonl --write` writes this page.",
        "[serving.md](serving.md) explains the model.",
        "",
        f"The package aiconfigurator-core {version()} lists measured servers. {len(rows)} of its rows serve",
        "prompts and decoding on the same GPUs, and are of models that we have. Errors are median / mean of",
        "|predicted / measured - 1| in percent. They are of held-out groups: all rows of a model on a GPU are",
        "left out, whatever their framework, the constants are fitted to the others, and these rows are predicted.",
        "",
        f"- Of {corrected} rows, the table states the square of the number of GPUs. They count as one node of 4 or 8.",
        *(f"- Left out: {count} rows: {why}." for why, count in out.most_common()),
        "- Several files of the package repeat a measurement. All repetitions are in one group.",
        "",
        "## Compared with AIConfigurator 0.12",
        "",
        "Rows that both answer. AIConfigurator refuses or cannot place the others (benchmarks/aiconfigurator_rows.py).",
        "Its errors are those of its own constants, which nobody fitted to these rows.",
        "",
        "| models | rows | per token: ours | AIConfigurator | first token: ours | AIConfigurator |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for title, chosen in (("dense", dense), ("with experts", ~dense), ("all", dense | ~dense)):
        q = chosen & answered
        cells = [
            error_text(found.token_s[q], token[q]),
            error_text(peer[q, 0], token[q]),
            error_text(found.first_s[q], first[q]),
            error_text(peer[q, 1], first[q]),
        ]
        lines.append(f"| {title} | {q.sum()} | {' | '.join(cells)} |")
    inside = [
        float(((measured >= low) & (measured <= high)).mean())
        for measured, (low, high) in ((token, found.token_interval), (first, found.first_interval))
    ]
    kinds: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        kinds.setdefault((row.model.split("/")[-1], row.machine, row.framework, row.precision), []).append(i)
    known = [predicted.copy() for predicted in (found.token_s, found.first_s)]
    for members in kinds.values():
        i = np.array(members)
        for predicted, measured in zip(known, (token, first), strict=True):
            predicted[i] *= np.median(measured[i] / predicted[i])
    lines += [
        "",
        "## All rows",
        "",
        f"Per token {error_text(found.token_s, token)}, first token {error_text(found.first_s, first)}.",
        f"Even if the factor of each line below were known, {error_text(known[0], token)} and",
        f"{error_text(known[1], first)} would remain: rows of equal sizes differ by versions of the framework,",
        "by drafted tokens (of TensorRT-LLM with DeepSeek since January 2026, it seems), by cached prompts, and by how",
        "requests come. The list states none of these.",
        f"{100 * inside[0]:.1f} % of the times per token, and {100 * inside[1]:.1f} % of those to the first token,",
        "lie in their 95 % interval, which comes from the errors of the other groups.",
        "",
        "| model | GPU | framework | precision | rows | per token | bias | first token | bias |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for kind, members in sorted(kinds.items()):
        i = np.array(members)
        biases = [
            f"{100 * (np.median(predicted[i] / measured[i]) - 1):+.0f}"
            for predicted, measured in ((found.token_s, token), (found.first_s, first))
        ]
        errors = [error_text(found.token_s[i], token[i]), error_text(found.first_s[i], first[i])]
        lines.append(f"| {' | '.join(kind)} | {len(i)} | {errors[0]} | {biases[0]} | {errors[1]} | {biases[1]} |")
    return lines


if __name__ == "__main__":
    main()
