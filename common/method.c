#include "common/method.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *spec_name;
    const char *former_spec; /* until 0.1.0; NULL: the same */
} methods[PP_METHOD_COUNT] = {
    [PP_METHOD_NONE] = {"none", "", NULL},
    [PP_METHOD_AUTO] = {"auto", "Auto", NULL},
    [PP_METHOD_JOB] = {"job", "Job", NULL},
    [PP_METHOD_REGRESSION] = {"regression", "Regression", "Direct"},
    [PP_METHOD_SAMPLING] = {"sampling", "Sampling", "Fine"},
    [PP_METHOD_REPLAY] = {"replay", "Replay", "Isolated"},
    [PP_METHOD_RECORDS] = {"records", "", NULL},
};

const char *pp_method_name(pp_method method)
{
    return methods[(unsigned)method < PP_METHOD_COUNT ? method : PP_METHOD_NONE].name;
}

const char *pp_method_spec_name(pp_method method)
{
    return methods[(unsigned)method < PP_METHOD_COUNT ? method : PP_METHOD_NONE].spec_name;
}

int pp_method_from_spec_name(const char *name, pp_method *ret)
{
    for (int i = PP_METHOD_AUTO; i <= PP_METHOD_LAST_ASKED; i++) {
        const char *former = methods[i].former_spec;
        if (strcmp(name, methods[i].spec_name) != 0 && (!former || strcmp(name, former) != 0))
            continue;
        *ret = (pp_method)i;
        return 0;
    }
    return -1;
}

void pp_method_spec_names(char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = PP_METHOD_AUTO; i <= PP_METHOD_LAST_ASKED && len < size; i++) {
        const char *between = i == PP_METHOD_AUTO ? "" : i == PP_METHOD_LAST_ASKED ? " and " : ", ";
        int n = snprintf(out + len, size - len, "%s%s", between, methods[i].spec_name);
        len += n > 0 ? (size_t)n : 0;
    }
}

int pp_method_parse(const char *text, const char *field, pp_method *ret, pp_error *err)
{
    char known[PP_METHOD_COUNT * 16];
    if (pp_method_from_spec_name(text, ret) == 0)
        return 0;
    pp_method_spec_names(known, sizeof known);
    return pp_error_field(err, field, "\"%.20s\" is none of %s", text, known);
}

const char *pp_basis_name(pp_basis basis)
{
    return basis == PP_BASIS_ELAPSED ? "elapsed" : basis == PP_BASIS_BUSY ? "busy" : NULL;
}
