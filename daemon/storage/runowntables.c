// Tables of scoped-lane in a run file, whatever columns they have: /scoped_lane/NAME, a dataset for each column.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "storage/runread.h"

struct loading {
    struct sl_run *run;
    struct run_table *table;
    h5_id group;
    uint64_t length;  // of the first column, and so of all
    int result;
};

static bool load_column(void *context, const char *name)
{
    struct loading *loading = context;
    struct sl_run *run = loading->run;
    struct run_table *table = loading->table;
    size_t at = table->table.column_count;
    table->columns = alloc_resize(table->columns, at + 1, sizeof *table->columns);
    table->texts = alloc_resize(table->texts, at + 1, sizeof *table->texts);
    struct sl_table_column *column = &table->columns[at];
    *column = (struct sl_table_column){.name = alloc_text(name)};
    table->texts[at] = (struct run_texts){0};
    table->table.column_count++;

    struct h5_shape shape;
    h5_id dataset = h5_dataset_open(loading->group, name, &shape, &run->h5);
    h5_close(dataset);
    int result;
    if (dataset < 0) {
        result = run_fail(run, (int)dataset, "scoped_lane/%s/%s: %s", table->name, name, run->h5.text);
    } else if (shape.kind == H5_KIND_TEXT) {
        column->type = SL_TABLE_TEXT;
        result =
            run_load_texts(run, loading->group, table->name, name, &loading->length, RUN_REPAIR, &table->texts[at]);
        column->texts = table->texts[at].texts;
    } else if (shape.kind == H5_KIND_REAL) {
        column->type = SL_TABLE_REAL;
        result = run_load_reals(run, loading->group, table->name, name, &loading->length, (double **)&column->reals);
    } else {
        column->type = SL_TABLE_INT;
        result = run_load_ints(run, loading->group, table->name, name, &loading->length, (int64_t **)&column->integers);
    }
    loading->result = result;
    return result == 0;
}

static void drop_first(struct sl_run *run)
{
    struct run_table *table = run->tables;
    run->tables = table->next;
    for (size_t i = 0; i < table->table.column_count; i++) {
        free((char *)table->columns[i].name);
        free((int64_t *)table->columns[i].integers);
        free((double *)table->columns[i].reals);
        run_texts_finish(&table->texts[i]);
    }
    free(table->columns);
    free(table->texts);
    free(table->name);
    free(table);
}

void run_tables_finish(struct sl_run *run)
{
    while (run->tables)
        drop_first(run);
}

static int load_table(struct sl_run *run, h5_id own, const char *name)
{
    struct run_table *table = alloc_zeroed(1, sizeof *table);
    table->name = alloc_text(name);
    table->next = run->tables;
    run->tables = table;
    struct loading loading = {run, table, h5_group_open(own, name, &run->h5), RUN_ANY_LENGTH, 0};
    if (loading.group < 0)
        return run_fail(run, (int)loading.group, "scoped_lane/%s: %s", name, run->h5.text);
    int result = h5_children(loading.group, load_column, &loading, &run->h5);
    result = result < 0 ? run_fail(run, result, "scoped_lane/%s: %s", name, run->h5.text) : loading.result;
    struct h5_attribute version = {0};
    struct h5_error ignored;
    if (h5_attribute_get(loading.group, "version", &version, &ignored) == H5_ATTRIBUTE_INTEGER)
        table->table.version = version.integer;
    buffer_finish(&version.text);
    h5_close(loading.group);
    table->table.columns = table->columns;
    table->table.rows = loading.length == RUN_ANY_LENGTH ? 0 : loading.length;
    return result;
}

static struct run_table *find(const struct sl_run *run, const char *name)
{
    struct run_table *table = run->tables;
    while (table && strcmp(table->name, name))
        table = table->next;
    return table;
}

int sl_run_table(struct sl_run *run, const char *name, const struct sl_table **table, char error[SL_RUN_ERROR_MAX])
{
    *table = NULL;
    struct run_table *known = find(run, name);
    if (!known) {
        if (!h5_exists(run->file, "scoped_lane"))
            return 0;
        run->error = error;
        h5_id own = h5_group_open(run->file, "scoped_lane", &run->h5);
        int result = own < 0 ? run_fail(run, (int)own, "scoped_lane: %s", run->h5.text) : 0;
        bool there = result == 0 && h5_exists(own, name);
        if (there && (result = load_table(run, own, name)))
            drop_first(run);
        h5_close(own);
        run->error = NULL;
        if (result || !there)
            return result;
        known = find(run, name);
    }
    *table = &known->table;
    return 0;
}

const struct sl_table_column *sl_table_column(const struct sl_table *table, const char *name)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return &table->columns[i];
    return NULL;
}
