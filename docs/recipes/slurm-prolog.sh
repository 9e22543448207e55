#!/bin/sh
# Prolog and Epilog of Slurm: checks the node before each job, or after it. In slurm.conf:
#
#   Prolog=/etc/slurm/deepbench-prolog.sh        (or Epilog=…)
#   PrologFlags=Alloc
#   PrologEpilogTimeout=90
#
# Slurm drains a node whose prolog or epilog fails. So this one fails only if the check says that the node is slow,
# wrong or failed (exit code 1). It calls no command of Slurm, and it runs without PATH and HOME.
PATH=/usr/bin:/bin
DEEPBENCH=/opt/deepbench/bin/deepbench
REFERENCES=/etc/deepbench/references
HISTORY=/var/lib/deepbench/checks

line=$(
    timeout --kill-after=5 65 "$DEEPBENCH" fleet --check --reference "$REFERENCES" --history "$HISTORY" 2>&1 </dev/null
)
code=$?
logger -t deepbench -- "exit code $code: $line"
[ "$code" -ne 1 ]
