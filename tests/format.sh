#!/bin/sh
# docs/format.md holds: its tables against the headers, and against a segment, a spool and a run file that a reader made of
# nothing but those tables takes apart.
set -eu
cd "$(dirname "$0")/.."
build=${SL_BUILD:-$PWD/obj/release}
place=$(mktemp -d /tmp/sl-format-XXXXXX)
trap 'rm -rf "$place"' EXIT

python=.venv/bin/python
$python tests/format.py asserts >"$place/asserts.c"
"${CC:-cc}" -std=gnu11 -Wall -Werror -I. -Idaemon -fsyntax-only "$place/asserts.c" ||
    { echo "format: a table of docs/format.md is not what the headers say"; exit 1; }

# What it records, and nothing else, is what format.py expects to read.
cat >"$place/recorded.c" <<'C'
#include <stdio.h>

#include <scoped_lane.h>

int main(void)
{
    sl_region_t work = sl_region_at("work", "work.c", 7), outer = sl_region("outer"), inner = sl_region("inner");
    sl_rank(3);
    sl_thread_name("a name that is too long to stand in the row itself, so that it lies in a chain of blocks");
    for (int i = 0; i < 5; i++) {
        sl_enter(work);
        sl_exit(work);
    }
    sl_task_t task = sl_task_create("fiber", "the task", "its function");
    sl_task_step_in(task);
    sl_enter(work);
    sl_exit(work);
    sl_task_step_out(task);
    sl_enter(outer);
    sl_enter(inner);
    sl_exit(outer);
    sl_exit(inner);
    sl_enter(sl_region("left open"));
    puts("recorded");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    sl_task_finish(task);
    return 0;
}
C
"${CC:-cc}" -I. -Iclient "$place/recorded.c" -o "$place/recorded" -L"$build/lib" -lscoped_lane -Wl,-rpath,"$build/lib" -lpthread
$python tests/format.py read "$build/bin/scoped-laned" "$place"
