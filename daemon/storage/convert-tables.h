// What the converter writes beside the calls: metadata, lane tables, and our own tables under /scoped_lane.
#ifndef SL_STORAGE_CONVERT_TABLES_H
#define SL_STORAGE_CONVERT_TABLES_H

#include "core/model.h"
#include "storage/runwrite.h"
#include "storage/spool.h"

struct crossing_call {
    uint32_t process;
    struct model_call call;
};

struct kept_sample {
    uint32_t process;
    struct sample_facts sample;
};

// First start and last end of the calls seen on a thread: a row must enclose its calls.
struct span {
    int64_t first_ns, last_ns;
};

struct convert_facts {
    uint32_t process_room;
    struct crossing_call *crossing;
    uint64_t crossing_count, crossing_room;
    struct kept_sample *samples;
    uint64_t sample_count, sample_room;
    struct anchor *anchors;
    uint64_t anchor_count, anchor_room;
    struct span **spans;  // by process number and thread index
    uint32_t *span_counts;
    uint32_t span_processes;
};

void facts_add_crossing(struct convert_facts *facts, const struct model_process *process, const struct model_call *call);
void facts_add_samples(struct convert_facts *facts, const struct model_process *process, const struct sample_facts *samples, uint32_t count);
void facts_add_anchor(struct convert_facts *facts, const struct anchor *anchor);
void facts_prepare(struct convert_facts *facts, const struct model *model);  // between the passes
void facts_see_call(struct convert_facts *facts, const struct model_process *process, const struct model_call *call, int64_t start_ns,
                    int64_t end_ns);
int64_t facts_start_ns(const struct convert_facts *facts, struct model *model);  // of the run: the earliest registration or call
void facts_highest(const struct model *model, struct runwrite_options *options);
void facts_write_metadata(const struct convert_facts *facts, struct model *model, const struct spool_reader *reader, const char *output,
                          struct runwrite *w);
void facts_write_tables(const struct convert_facts *facts, struct model *model, struct runwrite *w);
void facts_finish(struct convert_facts *facts);

#endif
