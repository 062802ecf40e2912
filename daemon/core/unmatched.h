// Exits without an enter, and why: mostly the enter is there, but on another lane. A coroutine was resumed without a step, or a job that
// was begun on one thread is ended on another.
#ifndef SL_CORE_UNMATCHED_H
#define SL_CORE_UNMATCHED_H

#include "core/model.h"

// Takes in an UNMATCHED record of a ring that `thread` owns.
void unmatched_count(struct model_process *process, uint32_t thread, const struct sl_record *record);

// Where the missing enter may have gone: the newest open call of the region, on another lane, that is old enough, by the latest snapshot
// of open calls, and how many there are. NULL where there is none.
const struct open_facts *unmatched_open(const struct model_process *process, const struct model_unmatched *unmatched, uint32_t *candidates);

// The thread that entered an open call; of a task's, the one that ran the task last.
uint32_t unmatched_entered_by(const struct model_process *process, const struct open_facts *open);

// The same in words: region, lane and thread of the exit, and those of the enter. The caller frees.
char *unmatched_words(const struct model *model, struct model_process *process, const struct model_unmatched *unmatched);

#endif
