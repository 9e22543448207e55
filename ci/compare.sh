#!/usr/bin/env bash
# Two builds of a library in turn, and a verdict: one script for GitHub, GitLab, Buildkite, Jenkins and a shell.
# docs/ci.md has an example of each. All inputs are variables; none is executed but COMPARE_BUILD.
#
#   COMPARE_LIBRARY   openblas, onednn, mkl, aocl, onnxruntime or openvino
#   COMPARE_BASE      the old build: a wheel, a folder, a file, a version, or with COMPARE_BUILD a commit
#   COMPARE_HEAD      the new one
#   COMPARE_BUILD     builds a commit, in the root of the repository (default: nothing is built)
#   COMPARE_FILE      with COMPARE_BUILD: the library that it makes, relative to the root
#   COMPARE_SUITE     what to measure, one suite or case per line (default: quick)
#   COMPARE_BUDGET    time for everything (default: 10min)
#   COMPARE_MARGIN    slowdowns below this share do not count (default: 5%)
#   COMPARE_OUTPUT    a new folder for the results (default: deepbench-ci)
#   COMPARE_PYTHON    Python 3.11 or newer (default: python3)
#   COMPARE_SOURCE    the checkout of DeepBench (default: where this script is)
#
# Exit code 0: not slower; 1: slower; 2: this machine cannot tell; 64: an input cannot be used.
set -euo pipefail

refuse() {
    echo "compare.sh: $1" >&2
    exit 64
}

for name in COMPARE_LIBRARY COMPARE_BASE COMPARE_HEAD; do
    [ -n "${!name:-}" ] || refuse "$name is not set; wanted two builds of a library, see the top of this script"
done
source=${COMPARE_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
output=${COMPARE_OUTPUT:-deepbench-ci}
python=${COMPARE_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[[ $COMPARE_LIBRARY =~ ^[a-z][a-z0-9_]*$ ]] || refuse "COMPARE_LIBRARY is no name of a library"

if ! "$python" -c 'import deepbench' 2>/dev/null; then
    "$python" -m venv "$work/venv"
    python=$work/venv/bin/python
    "$python" -m pip install --quiet --disable-pip-version-check "$source"
fi

# The library of a commit, built in a folder of its own.
built() {
    local name=$1 commit=$2
    [[ $commit != -* ]] || refuse "a commit does not begin with -"
    git clone --quiet --no-checkout "$(git rev-parse --show-toplevel)" "$work/$name"
    git -C "$work/$name" fetch --quiet origin "$commit" 2>/dev/null || true
    git -C "$work/$name" checkout --quiet --detach "$commit" -- ||
        refuse "$commit is no commit of this repository; fetch it first (fetch-depth: 0)"
    (cd "$work/$name" && bash -c "$COMPARE_BUILD") >&2 || refuse "COMPARE_BUILD fails for $commit"
    [ -e "$work/$name/$COMPARE_FILE" ] || refuse "COMPARE_BUILD makes no $COMPARE_FILE for $commit"
    builds+=("$work/$name/$COMPARE_FILE")
}

equals='='
builds=()
if [ -n "${COMPARE_BUILD:-}" ]; then
    [ -n "${COMPARE_FILE:-}" ] || refuse "COMPARE_FILE is not set; wanted the library that COMPARE_BUILD makes"
    built base "$COMPARE_BASE"
    built head "$COMPARE_HEAD"
else
    builds=("$COMPARE_BASE" "$COMPARE_HEAD")
    # Versions have no slash, and are no files.
    [[ $COMPARE_BASE == */* || -e $COMPARE_BASE ]] || equals='=='
fi

words=()
while IFS= read -r line; do
    # A line is a suite or a case of several words; several suites may be on a line.
    read -r -a more <<<"$line"
    words+=(${more[@]+"${more[@]}"})
done <<<"${COMPARE_SUITE:-quick}"

"$python" -m deepbench ci --ab "$COMPARE_LIBRARY$equals${builds[0]},${builds[1]}" \
    --budget "${COMPARE_BUDGET:-10min}" --margin "${COMPARE_MARGIN:-5%}" --output "$output" -- "${words[@]}"
