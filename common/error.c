#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void set_message(pp_error *err, const char *fmt,
                                                              va_list args)
{
    int n = vsnprintf(err->message, sizeof err->message, fmt, args);
    if (n < 0)
        err->message[0] = '\0';
}

int pp_error_set(pp_error *err, pp_error_code code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = code;
        err->field[0] = '\0';
        set_message(err, fmt, args);
        va_end(args);
    }
    return -1;
}

int pp_error_field(pp_error *err, const char *field, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = PP_ERR_INVALID;
        (void)snprintf(err->field, sizeof err->field, "%s", field ? field : "");
        set_message(err, fmt, args);
        va_end(args);
    }
    return -1;
}

int pp_error_errno(pp_error *err, const char *fmt, ...)
{
    int saved = errno;
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = saved == ENOMEM ? PP_ERR_NOMEM : PP_ERR_IO;
        err->field[0] = '\0';
        set_message(err, fmt, args);
        va_end(args);
        size_t used = strlen(err->message);
        char text[96];
        const char *why = strerror_r(saved, text, sizeof text);
        (void)snprintf(err->message + used, sizeof err->message - used, ": %s", why);
    }
    return -1;
}

int pp_error_nomem(pp_error *err)
{
    return pp_error_set(err, PP_ERR_NOMEM, "out of memory");
}

int pp_error_prefix(pp_error *err, const char *fmt, ...)
{
    if (err) {
        char before[sizeof err->message];
        memcpy(before, err->message, sizeof before);
        va_list args;
        va_start(args, fmt);
        set_message(err, fmt, args);
        va_end(args);
        size_t used = strlen(err->message);
        (void)snprintf(err->message + used, sizeof err->message - used, ": %s", before);
    }
    return -1;
}

void pp_error_clear(pp_error *err)
{
    if (err)
        memset(err, 0, sizeof *err);
}

bool pp_error_retryable(const pp_error *err)
{
    switch (err->code) {
    case PP_ERR_CONFLICT:
    case PP_ERR_GONE:
    case PP_ERR_UNAVAILABLE:
    case PP_ERR_TIMEOUT:
    case PP_ERR_NOMEM:
    case PP_ERR_IO:
        return true;
    default:
        return false;
    }
}

const char *pp_error_code_name(pp_error_code code)
{
    static const char *const names[] = {
        [PP_OK] = "ok",
        [PP_ERR_INVALID] = "invalid",
        [PP_ERR_NOT_FOUND] = "not-found",
        [PP_ERR_CONFLICT] = "conflict",
        [PP_ERR_GONE] = "gone",
        [PP_ERR_DENIED] = "denied",
        [PP_ERR_UNAUTHORIZED] = "unauthorized",
        [PP_ERR_TOO_LARGE] = "too-large",
        [PP_ERR_UNAVAILABLE] = "unavailable",
        [PP_ERR_TIMEOUT] = "timeout",
        [PP_ERR_NOMEM] = "out-of-memory",
        [PP_ERR_IO] = "io",
        [PP_ERR_INTERNAL] = "internal",
    };
    if ((unsigned)code >= sizeof names / sizeof names[0] || !names[code])
        return "unknown";
    return names[code];
}
