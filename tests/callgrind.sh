#!/bin/sh
# callgrind.sh: nobody makes the hot path longer unseen. Instructions of each operation, counted by callgrind, which counts the
# same every time; the difference between 1,000 and 2,000 iterations leaves out what happens once. Each operation stands in a
# function of its own and includes what that saves and restores. The counts are those of GCC 12 at -O2 on x86-64; other
# compilers are measured, not judged.
set -u
costs='
enter     do_enter                 29
exit      do_exit                  77
next      do_next                  87
step      do_step_in,do_step_out   162
inside    do_enter_inside,do_exit_inside 106
task      do_create,do_finish      1179
off       do_enter,do_exit         12
'
build=${SL_BUILD:-obj/release}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
status=0
judge=yes
[ "$(uname -m)" = x86_64 ] || { echo "callgrind: not x86-64, nothing is counted"; exit 0; }
${CC:-cc} --version | head -1 | grep -q ' 12\.' || judge=
command -v valgrind >/dev/null || { echo "callgrind: valgrind is missing"; exit 1; }

count() {  # MODE FUNCTIONS ITERATIONS
    toggles=$(echo "$2" | sed 's/\([^,]*\),*/--toggle-collect=\1 /g')
    # shellcheck disable=SC2086 # words are wanted
    SCOPED_LANE=$1 valgrind --tool=callgrind --callgrind-out-file="$directory/out" $toggles "$build/tests/api/costs" "$3" \
        >"$directory/log" 2>&1 || { cat "$directory/log" >&2; return 1; }
    sed -n 's/^.*Collected : *//p' "$directory/log"
}

echo "$costs" | sed '/^$/d' >"$directory/table"
while read -r name functions limit; do
    mode=on
    [ "$name" = off ] && mode=off
    few=$(count $mode "$functions" 1000) && many=$(count $mode "$functions" 2000) || { status=1; continue; }
    cost=$(((many - few) / 1000))
    over=
    [ "$cost" -gt "$limit" ] && over='  too many' && [ -n "$judge" ] && status=1
    [ "$cost" -gt 0 ] || { echo "callgrind: $name was not counted"; status=1; }
    printf 'callgrind: %-6s %4d instructions, at most %d%s\n' "$name" "$cost" "$limit" "$over"
done <"$directory/table"
exit $status
