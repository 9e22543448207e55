#!/bin/sh
# HealthCheckProgram of Slurm: checks idle nodes once in a while. In slurm.conf:
#
#   HealthCheckProgram=/etc/slurm/deepbench-health-check.sh
#   HealthCheckInterval=21600
#   HealthCheckNodeState=IDLE,CYCLE
#
# Slurm kills this program after 60 s, and does not drain a node because of its exit code: the program must do that
# itself. When slurmd starts, some versions repeat it until it exits with 0, so it always does.
PATH=/usr/bin:/bin
DEEPBENCH=/opt/deepbench/bin/deepbench
REFERENCES=/etc/deepbench/references
HISTORY=/var/lib/deepbench/checks

line=$("$DEEPBENCH" fleet --check --reference "$REFERENCES" --history "$HISTORY" 2>&1 </dev/null)
code=$?
logger -t deepbench -- "exit code $code: $line"
if [ "$code" -eq 1 ]; then
    scontrol update nodename="$(uname -n | cut -d . -f 1)" state=drain reason="$(printf '%.200s' "$line")"
fi
exit 0
