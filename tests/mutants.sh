#!/bin/sh
# The property test (tests/property/programs.c) sees mistakes: each of these, made in a copy of the sources, has to fail it.
set -u
cd "$(dirname "$0")/.."
build=${SL_BUILD:-$PWD/obj/release}
variant=$(basename "$build")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

mkdir -p "$work/tree/tests" "$work/tree/daemon" "$work/tree/obj/$variant"
cp -a Makefile proto client "$work/tree"
cp -a daemon/base daemon/core "$work/tree/daemon"
cp -a tests/property tests/place.h "$work/tree/tests"
(cd "$build" && tar cf - faked daemon/base daemon/core tests/property) | (cd "$work/tree/obj/$variant" && tar xf -)

mutant() {  # WORDS SED-SCRIPT FILE...
    words=$1 script=$2
    shift 2
    rm -rf "$work/mutant"
    cp -a "$work/tree" "$work/mutant"
    (
        cd "$work/mutant" || exit 1
        for file; do
            before=$(cat "$file")
            sed -i "$script" "$file"
            [ "$before" != "$(cat "$file")" ] || { echo "mutants: nothing to change in $file: $words"; exit 1; }
        done
        make CFLAGS='-O1 -w' "obj/$variant/tests/property/programs" >make.out 2>&1 || { cat make.out; exit 1; }
        "obj/$variant/tests/property/programs" -n 400 >out 2>&1 && { echo "mutants: the property test does not see: $words"; exit 1; }
        grep -q '^programs: seed' out || { cat out; exit 1; }
        echo "  seen  $words"
    ) || status=1
}

mutant 'waiting time taken from the thread' 's/= lane->suspended - entry->suspended;/= sl_ring_lane(self->ring)->suspended - entry->suspended;/' \
    client/scoped_lane.h
mutant 'waiting time not clamped to the duration' '/if (waited > duration)/d; /waited = duration;/d' client/scoped_lane.h client/lane.c
mutant 'steps not clamped to the one before' '/if (now < lane->last_step_end)/,+1d' client/task.c
mutant 'the wait before the first step charged' 's/if (lane->steps)/if (1)/' client/task.c
mutant 'a stack per thread' 's/lane_use(self, row .*/lane_use(self, thread_lane(self));/' client/task.c
mutant 'an outer step that goes on' 's|close_step(self, outer, now|if (0) &|' client/task.c
mutant 'a slow step that nobody is told of' 's|length >= client->slow_step|0|' client/task.c
mutant 'an exit that leaves whatever is on top' 's/if (entry->start && region_of(entry) == region)/if (entry->start)/' \
    client/lane.c
mutant 'handles of recycled rows taken' 's/row->index == (uint32_t)task && //' client/task.c
mutant 'a record more in a ring than it holds' 's|: tail + records;|: tail + records + 1;|' client/lane.c
mutant 'a ring that stays with its first owner' \
    's/taking->slot->owner = sl_record_task(record);/if (taking->slot->owner == SL_RING_FREE) &/' daemon/core/model.c
mutant 'crossing calls in the self times' 's/if (sl_record_kind(record) != SL_CALL_CROSSING)/if (1)/' daemon/core/model.c
exit $status
