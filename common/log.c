#include "common/log.h"

#include "common/time.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048 };

static _Atomic int least_level = PP_LOG_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void pp_log_set_level(pp_log_level level)
{
    atomic_store(&least_level, (int)level);
}

int pp_log_level_from_name(const char *name, pp_log_level *ret_level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (pp_log_level)i;
            return 0;
        }
    }
    return -1;
}

/* Appends text as the inside of a JSON string, dropping what does not fit. */
static size_t append_escaped(char *out, size_t used, size_t size, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p && used + 8 < size; p++) {
        if (*p == '"' || *p == '\\') {
            out[used++] = '\\';
            out[used++] = (char)*p;
        } else if (*p < 0x20) {
            used += (size_t)snprintf(out + used, size - used, "\\u%04x", *p);
        } else {
            out[used++] = (char)*p;
        }
    }
    return used;
}

void pp_log(pp_log_level level, const char *subject, const char *fmt, ...)
{
    if ((int)level < atomic_load(&least_level))
        return;
    char message[LINE_MAX_BYTES / 2];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);

    char now[40];
    pp_time_format(pp_time_now(), 3, now, sizeof now);
    char line[LINE_MAX_BYTES];
    const size_t room = sizeof line - 4; /* for the closing quote, brace and newline */
    size_t used =
        (size_t)snprintf(line, room, "{\"time\":\"%s\",\"level\":\"%s\"", now, level_names[level]);
    if (subject) {
        used += (size_t)snprintf(line + used, room - used, ",\"subject\":\"");
        used = append_escaped(line, used, room / 2, subject);
        line[used++] = '"';
    }
    used += (size_t)snprintf(line + used, room - used, ",\"message\":\"");
    used = append_escaped(line, used, room, message);
    memcpy(line + used, "\"}\n", 3);
    /* One write per line: lines of several threads do not mix. A failing stderr is no reason to
     * stop. */
    if (write(STDERR_FILENO, line, used + 3) < 0)
        return;
}
