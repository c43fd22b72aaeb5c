#include "operator/api/problem.h"

#include "operator/api/value.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    int status;
    const char *name, *title;
} troubles[PP_API_TROUBLES] = {
    [PP_API_INVALID] = {400, "invalid", "The request is not valid"},
    [PP_API_UNAUTHORIZED] = {401, "unauthorized", "A valid token is needed"},
    [PP_API_FORBIDDEN] = {403, "forbidden", "The token's user may not read this"},
    [PP_API_NOT_FOUND] = {404, "not-found", "There is nothing here"},
    [PP_API_URI_TOO_LONG] = {414, "uri-too-long", "The path is too long"},
    [PP_API_BUSY] = {429, "busy", "Too much is asked at once"},
    [PP_API_INTERNAL] = {500, "internal", "The operator failed"},
    [PP_API_UNAVAILABLE] = {503, "unavailable", "It cannot be read now"},
};

int pp_api_trouble_status(pp_api_trouble trouble)
{
    return troubles[trouble].status;
}

int pp_api_problem_set(pp_api_problem *ret, pp_api_trouble trouble, const char *field,
                       const char *fmt, ...)
{
    char detail[sizeof ret->detail * 2];
    va_list args;
    ret->trouble = trouble;
    va_start(args, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    pp_copy_cut(ret->detail, sizeof ret->detail, detail);
    pp_copy_cut(ret->field, sizeof ret->field, field);
    return -1;
}

int pp_api_problem_write(const pp_api_problem *p, pp_buf *out, pp_error *err)
{
    if (pp_buf_printf(out, err,
                      "{\"type\":\"urn:precisionprobe:problem:%s\",\"title\":\"%s\","
                      "\"status\":%d,\"detail\":",
                      troubles[p->trouble].name, troubles[p->trouble].title,
                      troubles[p->trouble].status) < 0 ||
        pp_api_write_text(out, p->detail, err) < 0)
        return -1;
    if (*p->field &&
        (pp_buf_printf(out, err, ",\"field\":") < 0 || pp_api_write_text(out, p->field, err) < 0))
        return -1;
    return pp_buf_append(out, "}\n", 2, err);
}
