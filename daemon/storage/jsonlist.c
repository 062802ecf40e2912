// See jsonlist.h. A scanner by RFC 8259 that recurses no deeper than DEPTH_MAX, whatever the text.
#include "storage/jsonlist.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { DEPTH_MAX = 512 };

struct scanner {
    const char *at;
    int depth;
};

static void skip_space(struct scanner *scan)
{
    scan->at += strspn(scan->at, " \t\r\n");
}

static bool scan_string(struct scanner *scan)
{
    if (*scan->at++ != '"')
        return false;
    for (; *scan->at != '"'; scan->at++) {
        if ((unsigned char)*scan->at < 0x20)
            return false;  // the end of the text too
        if (*scan->at != '\\')
            continue;
        scan->at++;
        if (*scan->at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++scan->at))
                    return false;
        } else if (*scan->at == 0 || !strchr("\"\\/bfnrt", *scan->at)) {
            return false;
        }
    }
    scan->at++;
    return true;
}

static bool scan_digits(struct scanner *scan)
{
    size_t length = strspn(scan->at, "0123456789");
    scan->at += length;
    return length > 0;
}

static bool scan_number(struct scanner *scan)
{
    scan->at += *scan->at == '-';
    if (*scan->at == '0')
        scan->at++;
    else if (!scan_digits(scan))
        return false;
    if (*scan->at == '.') {
        scan->at++;
        if (!scan_digits(scan))
            return false;
    }
    if (*scan->at == 'e' || *scan->at == 'E') {
        scan->at++;
        scan->at += *scan->at == '+' || *scan->at == '-';
        return scan_digits(scan);
    }
    return true;
}

// Python writes, and reads, three words more than JSON has.
static bool scan_word(struct scanner *scan)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(scan->at, words[i], strlen(words[i])) == 0) {
            scan->at += strlen(words[i]);
            return true;
        }
    return scan_number(scan);
}

static bool scan_value(struct scanner *scan, int64_t *elements);

static bool scan_key(struct scanner *scan)
{
    skip_space(scan);
    if (!scan_string(scan))
        return false;
    skip_space(scan);
    return *scan->at++ == ':';
}

// From the opening bracket to behind the closing one.
static bool scan_many(struct scanner *scan, char closer, int64_t *elements)
{
    int64_t ignored;
    scan->at++;
    skip_space(scan);
    for (bool first = true; first ? *scan->at != closer : *scan->at == ','; first = false) {
        scan->at += !first;
        if (closer == '}' && !scan_key(scan))
            return false;
        if (!scan_value(scan, &ignored))
            return false;
        ++*elements;
        skip_space(scan);
    }
    return *scan->at++ == closer;
}

static bool scan_value(struct scanner *scan, int64_t *elements)
{
    skip_space(scan);
    *elements = 0;
    if (*scan->at == '"')
        return scan_string(scan);
    if (*scan->at != '[' && *scan->at != '{')
        return scan_word(scan);
    if (scan->depth == DEPTH_MAX)
        return false;
    scan->depth++;
    bool sound = scan_many(scan, *scan->at == '[' ? ']' : '}', elements);
    scan->depth--;
    return sound;
}

int64_t json_list_length(const char *text)
{
    struct scanner scan = {.at = text};
    int64_t elements;
    skip_space(&scan);
    bool list = *scan.at == '[', null = *scan.at == 'n';
    if (!scan_value(&scan, &elements))
        return JSON_LIST_NOT_JSON;
    skip_space(&scan);
    if (*scan.at)
        return JSON_LIST_NOT_JSON;
    return list ? elements : null ? 0 : JSON_LIST_NOT_A_LIST;
}
