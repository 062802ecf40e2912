#!/bin/bash
# docs/query.md: every curl line of it gives an answer, and every path that the daemon serves has one; so have the metrics their line.
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "${SL_BUILD:-obj/release}") page=$PWD/docs/query.md
place=$(mktemp -d /tmp/sl-XXXXXX)
export SCOPED_LANE_RUNDIR=$place/rundir
mkfifo "$place/fifo"
exec 3<>"$place/fifo"  # the program waits until nobody writes to it any more
"$build/bin/scoped-laned" --output "$place" 2>"$place/log" &
daemon=$!
for _ in $(seq 300); do
    grep -q ready "$place/log" && break
    sleep 0.1
done
"$build/tests/api/pairs" -n 1000 -r 0 -o wait -w work <"$place/fifo" >"$place/said" 3>&- &
program=$!
trap 'kill $program $daemon 2>/dev/null; wait $program $daemon; rm -rf "$place"' EXIT
cd "$place" || exit 2
status=0
fail() {
    echo "query: $*"
    status=1
}

export S=$SCOPED_LANE_RUNDIR/query.sock RUN=
for _ in $(seq 300); do
    RUN=$(curl -sf --unix-socket "$S" http://localhost/v1/processes | jq -r 'first(.rows[] | select(.stored == 1000) | .run)')
    [ -n "$RUN" ] && break
    kill -0 $daemon || { cat log; exit 1; }
    sleep 0.1
done
[ -n "$RUN" ] || { fail "no process is recorded"; exit 1; }

while read -r line; do
    if ! answer=$(timeout 20 bash -c "$line" 2>&1) || [ -z "$answer" ]; then
        fail "no answer to: $line: $answer"
    fi
done < <(sed -n 's/^    \(curl .*\)/\1/p' "$page")

curl -s --unix-socket "$S" http://localhost/nothing | jq -r .error | grep -oE '(/[a-z0-9_]+)+' | sort -u | while read -r path; do
    [ "$path" = /nothing ] || grep -q "^    curl .*localhost$path\b" "$page" || echo "$path"
done >missing
[ ! -s missing ] || fail "no curl line for $(tr '\n' ' ' <missing)"

# Each metric is explained, and the dashboard uses none that there is not.
cd "$(dirname "$page")/.." || exit 2
metrics=$(grep -oE '\{"scoped_laned?_[a-z_]+", "(counter|gauge|histogram)"' daemon/services/metrics.c | cut -d'"' -f2)
for metric in $metrics; do
    grep -qF "| \`$metric\` |" "$page" || fail "$page does not tell of $metric"
done
for metric in $(jq -r '.. | .expr? // empty' docs/grafana.json | grep -oE 'scoped_laned?_[a-z_]+' | sed -E 's/(_seconds)_(bucket|count|sum)$/\1/' | sort -u); do
    echo "$metrics" | grep -qx "$metric" || fail "docs/grafana.json asks for $metric, which is not there"
done
exit $status
