// What doctor finds: each finding says what was looked at, what is there, how bad that is, and what to do.
#ifndef SL_CLI_DOCTOR_H
#define SL_CLI_DOCTOR_H

#include <jansson.h>
#include <stdint.h>

#include "base/rundir.h"

enum severity {
    DOCTOR_OK,
    DOCTOR_NOTE,   // good to know
    DOCTOR_SLOW,   // recording works, and costs more or holds less than it could
    DOCTOR_STOPS,  // nothing is recorded
};

struct doctor {
    json_t *rows;
    int stops;
};

// `advice` NULL: nothing is to be done.
void doctor_find(struct doctor *doctor, enum severity severity, const char *check, const char *advice, const char *format,
                 ...) __attribute__((format(printf, 5, 6)));

void doctor_machine(struct doctor *doctor, const char *rundir_option);
void doctor_process(struct doctor *doctor, uint32_t pid);

// Of a place where processes of that user look for a daemon: is it sound, and does somebody listen whom they trust? True
// then.
bool doctor_place(struct doctor *doctor, const char *place, uid_t uid);
// Where segments are made.
void doctor_shm(struct doctor *doctor, const char *directory);

#endif
