#include "core/steps.h"

#include <stdlib.h>

#include "base/alloc.h"

#define MS INT64_C(1000000)

const int64_t steps_edges_ns[STEPS_EDGES] = {MS,       5 * MS / 2, 5 * MS,    10 * MS,   25 * MS,   50 * MS,   100 * MS,
                                             250 * MS, 500 * MS,   1000 * MS, 2500 * MS, 5000 * MS, 10000 * MS};

struct steps *steps_of(struct steps_table *table, uint32_t kind)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (table->of[i].kind == kind)
            return &table->of[i];
    if (table->count >= STEPS_KINDS - 1 && kind != STEPS_KIND_OTHER)  // the last place is for all others
        return steps_of(table, STEPS_KIND_OTHER);
    table->of = alloc_resize(table->of, table->count + 1, sizeof *table->of);
    table->of[table->count] = (struct steps){.kind = kind};
    return &table->of[table->count++];
}

void steps_count_slow(uint64_t over[STEPS_EDGES], int64_t length_ns)
{
    for (int i = 0; i < STEPS_EDGES && length_ns > steps_edges_ns[i]; i++)
        over[i]++;
}

void steps_finish(struct steps_table *table)
{
    free(table->of);
}
