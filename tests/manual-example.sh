#!/bin/sh
# The examples of scoped_lane(3) and sl_tracker(3), word for word: compiled against what is installed; the first is recorded as the
# manual says, and its report has the calls that the manual promises, the second runs by itself.
set -eu
cd "$(dirname "$0")/.."
place=$(mktemp -d /tmp/sl-manual-XXXXXX)
trap 'rm -rf "$place"' EXIT
prefix=/opt/scoped-lane root=$place/opt/scoped-lane

make --no-print-directory install DESTDIR="$place" PREFIX=$prefix
[ -e "$root/share/man/man3/scoped_lane.3" ] || { echo "manual-example: scoped_lane.3 is not installed"; exit 1; }
example() {  # PAGE: the first literal block of EXAMPLES; \e is a backslash
    awk '/^\.Sh EXAMPLES/ { on = 1 } on && /^\.Ed/ { exit } on && !/^\./' "docs/man/$1" | sed 's/\\e/\\/g'
}
example scoped_lane.3 >"$place/rounds.c"
example sl_tracker.3 >"$place/tracker.c"

export PKG_CONFIG_SYSROOT_DIR="$place" PKG_CONFIG_PATH="$root/lib/pkgconfig" LD_LIBRARY_PATH="$root/lib"
export PATH="$root/bin:$PATH" SCOPED_LANE_RUNDIR="$place"
unset SCOPED_LANE SCOPED_LANE_RUN SCOPED_LANE_SHM_DIR
for name in rounds tracker; do
    # shellcheck disable=SC2046 # words are wanted
    "${CC:-cc}" -Wall -Wextra -Werror "$place/$name.c" -o "$place/$name" $(pkg-config --cflags --libs scoped-lane) -lpthread
done
cd "$place"
scoped-lane run -o rounds.h5 ./rounds 2>words || { cat words; exit 1; }

calls=$(scoped-lane report --tsv rounds.h5 | cut -f 1,3 | sort | tr '\t\n' '= ')
[ "$calls" = "compute=3 load=4 name=calls round=3 store=3 " ] || { echo "manual-example: the report has $calls"; exit 1; }
threads=$(scoped-lane report --table threads --tsv rounds.h5 | cut -f 3 | sort | tr '\n' ' ')
[ "$threads" = "name rounds worker " ] || { echo "manual-example: the threads are $threads"; exit 1; }
tasks=$(scoped-lane report --table tasks --tsv rounds.h5 | sed 1d | cut -f 3,4,5 | tr '\t' ' ')
[ "$tasks" = "fiber first fiber" ] || { echo "manual-example: the tasks are $tasks"; exit 1; }

names=$(./tracker | sed 's/ .*//' | sort | tr '\n' ' ')
[ "$names" = "left right " ] || { echo "manual-example: the tracker knows $names"; exit 1; }
