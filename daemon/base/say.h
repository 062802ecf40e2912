// Words to a person, on stderr, each line opened by the program's name. A message says what was tried, on what, and why
// it failed: say("cannot open %s: %s", path, strerror(errno)).
#ifndef SL_BASE_SAY_H
#define SL_BASE_SAY_H

#include <stdbool.h>

extern bool say_verbose;           // set by -v: say_detail speaks only then
void say_name(const char *program);  // kept by reference; until then lines open with "scoped-lane"
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
