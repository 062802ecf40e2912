// Memory that is there or ends the program: a daemon that cannot get a few bytes stops with a message, and its spool
// survives it. Large arrays whose size a peer or a file decides are allocated with plain malloc and checked.
#ifndef SL_BASE_ALLOC_H
#define SL_BASE_ALLOC_H

#include <stddef.h>

void *alloc_zeroed(size_t count, size_t size);                // as calloc
void *alloc_resize(void *memory, size_t count, size_t size);  // as reallocarray; the new part is not cleared
char *alloc_text(const char *text);                           // as strdup
char *alloc_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
