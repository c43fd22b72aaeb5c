#include "common/time.h"

#include "common/buf.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const int64_t SECOND = 1000000000;

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

int64_t pp_time_now(void)
{
    return read_clock(CLOCK_REALTIME);
}

int64_t pp_time_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t pp_time_offset(void)
{
    enum { READINGS = 5 };
    int64_t offset = 0, least = INT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        const int64_t before = pp_time_monotonic(), now = pp_time_now();
        const int64_t took = pp_time_monotonic() - before;
        if (took >= least)
            continue;
        least = took;
        offset = now - before - took / 2;
    }
    return offset;
}

static const struct {
    const char *suffix;
    int64_t ns;
} duration_units[] = {
    {"h", 3600000000000}, {"ms", 1000000}, /* before "m": the longer suffix is tried first */
    {"m", 60000000000},   {"us", 1000},    {"ns", 1}, {"s", 1000000000}};

/* Reads digits and an optional fraction in units of `unit` ns once the unit is known. */
static int parse_term(const char **at, int64_t *total, pp_error *err)
{
    const char *p = *at;
    int64_t whole = 0;
    const char *digits = p;
    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, *p - '0', &whole))
            return pp_error_set(err, PP_ERR_INVALID, "duration is too long");
    }
    const char *fraction = NULL;
    size_t fraction_digits = 0;
    if (*p == '.') {
        fraction = ++p;
        while (isdigit((unsigned char)*p))
            p++;
        fraction_digits = (size_t)(p - fraction);
    }
    if (p == digits || (fraction && fraction_digits == 0))
        return pp_error_set(err, PP_ERR_INVALID, "a duration looks like 90s, 2m30s or 250ms");
    for (size_t i = 0; i < sizeof duration_units / sizeof duration_units[0]; i++) {
        size_t n = strlen(duration_units[i].suffix);
        if (strncmp(p, duration_units[i].suffix, n) != 0)
            continue;
        int64_t unit = duration_units[i].ns;
        int64_t term;
        if (__builtin_mul_overflow(whole, unit, &term))
            return pp_error_set(err, PP_ERR_INVALID, "duration is too long");
        for (size_t d = 0; d < fraction_digits && unit > 1; d++) {
            unit /= 10;
            if (__builtin_add_overflow(term, (fraction[d] - '0') * unit, &term))
                return pp_error_set(err, PP_ERR_INVALID, "duration is too long");
        }
        if (__builtin_add_overflow(*total, term, total))
            return pp_error_set(err, PP_ERR_INVALID, "duration is too long");
        *at = p + n;
        return 0;
    }
    return pp_error_set(err, PP_ERR_INVALID, "a duration needs a unit: h, m, s, ms, us or ns");
}

int pp_duration_parse(const char *text, int64_t *ret_ns, pp_error *err)
{
    int64_t total = 0;
    const char *at = text;
    if (!*at)
        return pp_error_set(err, PP_ERR_INVALID, "a duration looks like 90s, 2m30s or 250ms");
    while (*at) {
        if (parse_term(&at, &total, err) < 0)
            return -1;
    }
    *ret_ns = total;
    return 0;
}

void pp_duration_format(int64_t ns, char *out, size_t size)
{
    if (ns == 0) {
        (void)snprintf(out, size, "0s");
        return;
    }
    static const struct {
        const char *suffix;
        int64_t ns;
    } units[] = {{"h", 3600000000000}, {"m", 60000000000}, {"s", 1000000000},
                 {"ms", 1000000},      {"us", 1000},       {"ns", 1}};
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof units[0] && used < size; i++) {
        int64_t count = ns / units[i].ns;
        ns %= units[i].ns;
        if (count)
            used +=
                (size_t)snprintf(out + used, size - used, "%" PRId64 "%s", count, units[i].suffix);
    }
}

/* Exactly n digits as a number, or -1. */
static int fixed_digits(const char **at, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        if (!isdigit((unsigned char)**at))
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static int bad_time(pp_error *err)
{
    return pp_error_set(err, PP_ERR_INVALID, "a time looks like 2026-01-02T03:04:05Z");
}

/* "Z" or "+hh:mm" into seconds east of UTC. */
static int parse_offset(const char **at, int *ret_seconds)
{
    if (**at == 'Z' || **at == 'z') {
        (*at)++;
        *ret_seconds = 0;
        return 0;
    }
    int sign = **at == '+' ? 1 : **at == '-' ? -1 : 0;
    if (!sign)
        return -1;
    (*at)++;
    int hours = fixed_digits(at, 2);
    if (hours < 0 || hours > 23 || *(*at)++ != ':')
        return -1;
    int minutes = fixed_digits(at, 2);
    if (minutes < 0 || minutes > 59)
        return -1;
    *ret_seconds = sign * (hours * 3600 + minutes * 60);
    return 0;
}

static int parse_calendar(const char **at, struct tm *tm)
{
    static const char separators[] = {'-', '-', 'T', ':', ':'};
    int parts[6];
    for (int i = 0; i < 6; i++) {
        parts[i] = fixed_digits(at, i == 0 ? 4 : 2);
        if (parts[i] < 0)
            return -1;
        if (i < 5 && toupper((unsigned char)*(*at)++) != separators[i])
            return -1;
    }
    if (parts[0] < 1970 || parts[0] > 2261 || parts[1] < 1 || parts[1] > 12 || parts[2] < 1 ||
        parts[2] > 31 || parts[3] > 23 || parts[4] > 59 || parts[5] > 60)
        return -1;
    *tm = (struct tm){.tm_year = parts[0] - 1900,
                      .tm_mon = parts[1] - 1,
                      .tm_mday = parts[2],
                      .tm_hour = parts[3],
                      .tm_min = parts[4],
                      .tm_sec = parts[5]};
    return 0;
}

int pp_time_parse(const char *text, int64_t *ret_ns, pp_error *err)
{
    const char *at = text;
    struct tm tm;
    if (parse_calendar(&at, &tm) < 0)
        return bad_time(err);
    int64_t fraction = 0;
    if (*at == '.') {
        at++;
        if (!isdigit((unsigned char)*at))
            return bad_time(err);
        for (int64_t unit = SECOND / 10; isdigit((unsigned char)*at); at++, unit /= 10)
            fraction += (*at - '0') * unit;
    }
    int offset;
    if (parse_offset(&at, &offset) < 0 || *at)
        return bad_time(err);
    *ret_ns = ((int64_t)timegm(&tm) - offset) * SECOND + fraction;
    return 0;
}

void pp_time_format(int64_t ns, int fraction, char *out, size_t size)
{
    int64_t seconds = ns / SECOND;
    int64_t rest = ns % SECOND;
    if (rest < 0) {
        rest += SECOND;
        seconds--;
    }
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof tm);
    char text[48];
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    if (fraction > 0)
        text[n++] = '.';
    for (int64_t unit = SECOND / 10; fraction > 0 && unit > 0; fraction--, unit /= 10)
        text[n++] = (char)('0' + rest / unit % 10);
    text[n++] = 'Z';
    text[n] = '\0';
    pp_copy_cut(out, size, text);
}
