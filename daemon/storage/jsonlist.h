// Is a text a JSON list, and of how many? scope-profiler keeps tags and call metadata in such columns and fails where
// they are something else. The reading library asks no more than this, and so needs no JSON library.
#ifndef SL_STORAGE_JSONLIST_H
#define SL_STORAGE_JSONLIST_H

#include <stdint.h>

enum { JSON_LIST_NOT_JSON = -1, JSON_LIST_NOT_A_LIST = -2 };

// Elements of the list, 0 for null, or one of the above.
int64_t json_list_length(const char *text);

#endif
