#include "cli/run/processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATIONS_MAX = 64 };

/* "PID (NAME) STATE PPID ...": a name may hold anything, parentheses too. False: it is gone. */
static bool read_stat(pid_t process, char *out, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(out, 1, size - 1, f) : 0;
    if (f)
        (void)fclose(f);
    out[n] = '\0';
    return n > 0;
}

static pid_t parent_of(pid_t process)
{
    char text[512];
    const char *end = read_stat(process, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!end || strlen(end) < sizeof ") S 1" - 1)
        return 0;
    return (pid_t)strtol(end + sizeof ") S" - 1, NULL, 10);
}

bool pp_process_descends(pid_t process, pid_t from)
{
    for (int i = 0; i < GENERATIONS_MAX && process > 0; i++) {
        if (process == from)
            return true;
        process = parent_of(process);
    }
    return false;
}

void pp_process_name(pid_t process, char *out, size_t size)
{
    char text[512];
    *out = '\0';
    if (!read_stat(process, text, sizeof text))
        return;
    const char *begin = strchr(text, '('), *end = strrchr(text, ')');
    size_t n = 0;
    while (begin && end && ++begin < end && n + 1 < size) {
        out[n] = *begin;
        if (*begin < ' ' || *begin > '~')
            out[n] = '?';
        n++;
    }
    out[n] = '\0';
}
