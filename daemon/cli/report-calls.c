// See report-calls.h.
#include "cli/report-calls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"

enum { FLUSH_BYTES = 256 << 10 };

struct printing {
    FILE *to;
    enum table_form form;
    const struct sl_run *run;
    struct buffer text;
    struct json_writer json;
    char *path;  // room for the path of a call
    size_t path_size;
};

static void put_escaped(struct buffer *into, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '\t' || byte == '\n' || byte == '\\')
            buffer_printf(into, "\\%c", byte == '\t' ? 't' : byte == '\n' ? 'n' : '\\');
        else if (byte < 0x20 || byte == 0x7f)
            buffer_printf(into, "\\x%02x", byte);
        else
            buffer_append(into, text, 1);
    }
}

// One call: both forms have the same fields.
struct line {
    uint32_t rank;
    size_t id;  // position in the rank's stack; what `parent` refers to
    const char *region, *label, *path;
    uint64_t call_index;
    int64_t lane, start_ns, end_ns, parent, self_ns, await_ns;
    uint32_t depth;
};

static void put_tsv(struct buffer *into, const struct line *line)
{
    buffer_printf(into, "%" PRIu32 "\t%zu\t", line->rank, line->id);
    put_escaped(into, line->region);
    buffer_printf(into, "\t%" PRIu64 "\t%" PRId64 "\t", line->call_index, line->lane);
    put_escaped(into, line->label);
    buffer_printf(into, "\t%" PRId64 "\t%" PRId64 "\t%" PRIu32 "\t", line->start_ns, line->end_ns, line->depth);
    if (line->parent >= 0)
        buffer_printf(into, "%" PRId64, line->parent);
    buffer_printf(into, "\t%" PRId64 "\t%" PRId64 "\t", line->self_ns, line->await_ns);
    put_escaped(into, line->path);
    buffer_append(into, "\n", 1);
}

static void put_json(struct json_writer *json, const struct line *line)
{
    jsonw_object(json);
    jsonw_member_int(json, "rank", line->rank);
    jsonw_member_uint(json, "call_id", line->id);
    jsonw_member_text(json, "region", line->region);
    jsonw_member_uint(json, "call_index", line->call_index);
    jsonw_member_int(json, "lane", line->lane);
    jsonw_member_text(json, "label", line->label);
    jsonw_member_int(json, "start_ns", line->start_ns);
    jsonw_member_int(json, "end_ns", line->end_ns);
    jsonw_member_int(json, "depth", line->depth);
    jsonw_member_time(json, "parent", line->parent);
    jsonw_member_int(json, "self_ns", line->self_ns);
    jsonw_member_int(json, "await_ns", line->await_ns);
    jsonw_member_text(json, "path", line->path);
    jsonw_object_end(json);
}

static const char *path_of(struct printing *printing, const struct sl_call_stack *stack, const struct sl_calls *calls,
                           size_t i)
{
    size_t length = sl_call_path(printing->run, stack, calls, i, printing->path, printing->path_size);
    if (length < printing->path_size)
        return printing->path;
    char *longer = realloc(printing->path, length + 1);
    if (!longer)
        return "";
    printing->path = longer;
    printing->path_size = length + 1;
    sl_call_path(printing->run, stack, calls, i, longer, length + 1);
    return longer;
}

static int print_stack(struct printing *printing, const struct sl_call_stack *stack, const struct sl_calls *calls)
{
    char label[256] = "";
    for (size_t i = 0; i < stack->count; i++) {
        uint64_t call = stack->order[i];
        if (stack->lane)
            sl_lane_label(printing->run, calls->rank, stack->lane[i], label, sizeof label);
        struct line line = {
            .rank = calls->rank,
            .id = i,
            .region = sl_run_region_name(printing->run, calls->region[call]),
            .label = label,
            .path = path_of(printing, stack, calls, i),
            .call_index = calls->call_index[call],
            .lane = stack->lane ? stack->lane[i] : -1,
            .start_ns = calls->start_ns[call],
            .end_ns = calls->end_ns[call],
            .parent = stack->parent[i],
            .self_ns = stack->exclusive_ns[i],
            .await_ns = calls->await_ns ? calls->await_ns[call] : 0,
            .depth = stack->depth[i],
        };
        if (printing->form == TABLE_JSON)
            put_json(&printing->json, &line);
        else
            put_tsv(&printing->text, &line);
        if (printing->text.length > FLUSH_BYTES) {
            fwrite(printing->text.data, 1, printing->text.length, printing->to);
            buffer_clear(&printing->text);
            if (ferror(printing->to))
                return -EIO;
        }
    }
    return 0;
}

static int print_rank(struct printing *printing, struct sl_run *run, uint32_t rank, char error[SL_RUN_ERROR_MAX])
{
    struct sl_calls calls;
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    int result = sl_run_calls(run, rank, &calls, error);
    if (result)
        return result;
    result = sl_call_stack_build(&calls, &stack, &wrong);
    if (result == -EBADMSG) {
        sl_nesting_error_text(run, rank, &wrong, error, SL_RUN_ERROR_MAX);
    } else if (result == 0) {
        result = print_stack(printing, &stack, &calls);
        sl_call_stack_finish(&stack);
    }
    if (result && result != -EBADMSG)
        snprintf(error, SL_RUN_ERROR_MAX, "cannot print the calls of rank %" PRIu32 ": %s", rank, strerror(-result));
    sl_calls_finish(&calls);
    return result;
}

int report_calls_print(FILE *to, enum table_form form, struct sl_run *run, int64_t rank, char error[SL_RUN_ERROR_MAX])
{
    struct printing printing = {.to = to, .form = form, .run = run};
    size_t count;
    const uint32_t *ranks = sl_run_ranks(run, &count);
    int result = 0;
    jsonw_init(&printing.json, &printing.text);
    if (form == TABLE_JSON)
        jsonw_array(&printing.json);
    else
        buffer_text(&printing.text, "rank\tcall_id\tregion\tcall_index\tlane\tlabel\tstart_ns\tend_ns\tdepth\tparent\t"
                                    "self_ns\tawait_ns\tpath\n");
    for (size_t i = 0; result == 0 && i < count; i++)
        if (rank < 0 || rank == ranks[i])
            result = print_rank(&printing, run, ranks[i], error);
    if (form == TABLE_JSON) {
        jsonw_array_end(&printing.json);
        buffer_text(&printing.text, "\n");
    }
    if (printing.text.length)
        fwrite(printing.text.data, 1, printing.text.length, to);
    buffer_finish(&printing.text);
    free(printing.path);
    return result;
}
