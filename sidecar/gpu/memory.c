#include "sidecar/gpu/memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Version 1 has no word for "no limit", but a number near this one. */
#define NO_LIMIT (INT64_C(1) << 60)

static FILE *open_file(const char *root, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", root, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* -1 for a text that does not begin with a number. */
static int64_t number_of(const char *text)
{
    char *end = NULL;
    long long value = strtoll(text, &end, 10);
    return end == text ? -1 : value;
}

/* -1: there is no such number. */
static int64_t read_number(const char *root, const char *name)
{
    char line[64];
    FILE *f = open_file(root, name);
    int64_t value = f && fgets(line, sizeof line, f) ? number_of(line) : -1;
    if (f)
        (void)fclose(f);
    return value;
}

/* A line of memory.stat; 0 where it is not there. */
static int64_t read_stat(const char *root, const char *file, const char *key)
{
    char line[128];
    int64_t found = 0;
    const size_t n = strlen(key);
    FILE *f = open_file(root, file);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            found = number_of(line + n);
    if (f)
        (void)fclose(f);
    return found > 0 ? found : 0;
}

static int64_t left_of(int64_t limit, int64_t used, int64_t droppable)
{
    if (limit < 0 || limit >= NO_LIMIT || used < 0)
        return INT64_MAX;
    return limit - used + droppable;
}

int64_t pp_memory_left(const char *root)
{
    int64_t used = read_number(root, "memory.current");
    if (used >= 0)
        return left_of(read_number(root, "memory.max"), used,
                       read_stat(root, "memory.stat", "inactive_file"));
    return left_of(read_number(root, "memory/memory.limit_in_bytes"),
                   read_number(root, "memory/memory.usage_in_bytes"),
                   read_stat(root, "memory/memory.stat", "total_inactive_file"));
}
