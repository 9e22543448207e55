"""Put a comment on a pull request of GitHub, or replace the one that an earlier run has put there.

    GITHUB_TOKEN=… GITHUB_REPOSITORY=owner/name COMPARE_PULL_REQUEST=12 python ci/comment.py comment.md

Only the standard library is used. The token goes to `GITHUB_API_URL` and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

# An earlier comment is recognized by this line, which GitHub does not show.
MARK = "<!-- deepbench -->"

# GitHub takes 65,536 characters.
MOST_CHARACTERS = 65_000

# Pages of a hundred comments that are searched.
MOST_PAGES = 10


def main(path: str) -> int:
    """Put the text of a file as comment; the exit code."""
    repository, number = os.environ.get("GITHUB_REPOSITORY", ""), os.environ.get("COMPARE_PULL_REQUEST", "")
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", repository) or not number.isdecimal():
        print("comment.py: GITHUB_REPOSITORY or COMPARE_PULL_REQUEST names no pull request", file=sys.stderr)
        return 64
    if not os.environ.get("GITHUB_TOKEN"):
        print("comment.py: GITHUB_TOKEN is not set; give the action `github-token`", file=sys.stderr)
        return 64
    text = f"{MARK}\n{Path(path).read_text(encoding='utf-8')[:MOST_CHARACTERS]}"
    place = f"/repos/{repository}/issues"
    try:
        earlier = find(f"{place}/{number}/comments")
        if earlier is None:
            call("POST", f"{place}/{number}/comments", {"body": text})
        else:
            call("PATCH", f"{place}/comments/{earlier}", {"body": text})
    except (OSError, ValueError) as error:  # urllib's errors are OSErrors
        print(f"comment.py: GitHub did not take the comment: {error}", file=sys.stderr)
        return 1
    return 0


def find(place: str) -> int | None:
    """The number of the comment of an earlier run; only those of bots count, because anybody may write the mark."""
    for page in range(1, MOST_PAGES + 1):
        comments = call("GET", f"{place}?per_page=100&page={page}")
        for comment in comments:
            if comment["user"]["type"] == "Bot" and str(comment["body"]).startswith(MARK):
                return int(comment["id"])
        if len(comments) < 100:
            return None
    return None


def call(method: str, place: str, content: dict[str, str] | None = None) -> Any:
    """One request to the API of GitHub."""
    request = urllib.request.Request(
        os.environ.get("GITHUB_API_URL", "https://api.github.com") + place,
        method=method,
        data=json.dumps(content).encode() if content is not None else None,
        headers={
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
