#!/bin/sh
# make demo: a heat equation on 4 ranks under scoped-lane run, looked at while it runs, then the report of its file, which
# stays here as heat.h5.
set -eu
build=${SL_BUILD:-obj/release}
lane=$build/bin/scoped-lane
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root  # mpirun asks for that
ranks=4 steps=${STEPS:-8000}

say() {
    printf '\n$ %s\n' "$*"
}

say "scoped-lane run -o heat.h5 -- mpirun -n $ranks heat -s $steps &"
"$lane" run -o heat.h5 -- mpirun $root --oversubscribe -n $ranks "$build/examples/heat" -s "$steps" &
run=$!
trap 'kill $run 2>/dev/null || :' EXIT

live() {
    "$lane" ps --json 2>/dev/null | jq '[.rows[] | select(.state == "live" and .calls > 0)] | length'
}
deadline=$(($(date +%s) + 30))
until [ "$(live)" = $ranks ]; do
    [ "$(date +%s)" -lt $deadline ] || { echo "demo: not $ranks ranks within 30 s" >&2; exit 1; }
    kill -0 $run 2>/dev/null || { echo "demo: the run ended before its $ranks ranks were seen" >&2; exit 1; }
    sleep 0.05
done
say scoped-lane ps
"$lane" ps
say scoped-lane threads
"$lane" threads

trap - EXIT
wait $run
say scoped-lane report heat.h5
"$lane" report heat.h5
