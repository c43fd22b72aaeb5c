#include "cli/formats/formats.h"

#include "cli/formats/schedulers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 15, NAME_MAX_BYTES = 64 };

static const pp_format *const formats[] = {&pp_format_koordinator, &pp_format_lucid,
                                           &pp_format_muri,        &pp_format_orion,
                                           &pp_format_trimaran,    NULL};

const pp_format *pp_format_find(const char *name)
{
    for (const pp_format *const *f = formats; *f; f++) {
        if (strcmp((*f)->name, name) == 0)
            return *f;
    }
    return NULL;
}

const char *pp_format_names(void)
{
    return "koordinator, lucid, muri, orion, trimaran";
}

static bool is_of(pp_told_type type, const char *value)
{
    char *end = NULL;
    const size_t n = strlen(value);
    if (type == PP_TOLD_WHOLE)
        return n > 0 && n <= DIGITS_MAX && strspn(value, "0123456789") == n;
    if (type == PP_TOLD_NUMBER)
        return isfinite(strtod(value, &end)) && end != value && !*end;
    return n > 0;
}

static const pp_told_field *field_of(const pp_format *f, const char *name)
{
    for (const pp_told_field *field = f->fields; field->name; field++) {
        if (strcmp(field->name, name) == 0)
            return field;
    }
    return NULL;
}

/* "NAME, NAME" */
static void list(const pp_format *f, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (const pp_told_field *field = f->fields; field->name && n < size; field++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", field->name);
}

int pp_format_tell(const pp_format *f, const char *text, json_t *told, pp_error *err)
{
    static const char *const types[] = {[PP_TOLD_TEXT] = "a text",
                                        [PP_TOLD_WHOLE] = "a whole number from 0 on",
                                        [PP_TOLD_NUMBER] = "a number"};
    char name[NAME_MAX_BYTES], known[300];
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : strlen(text);
    (void)snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 0, text);
    list(f, known, sizeof known);
    const pp_told_field *field = field_of(f, name);
    if (!*known)
        return pp_error_field(err, "--set", "is not of %s, which needs nothing told", f->name);
    if (!equals || !field)
        return pp_error_field(err, "--set", "must be NAME=VALUE, NAME one of %s", known);
    if (!is_of(field->type, equals + 1))
        return pp_error_field(err, "--set", "%s must be %s", name, types[field->type]);
    if (json_object_get(told, name))
        return pp_error_field(err, "--set", "%s is there twice", name);
    return json_object_set_new(told, name, json_string(equals + 1)) == 0
               ? 0
               : pp_error_field(err, "--set", "%s must be UTF-8", name);
}

int pp_format_write(const pp_format *f, const pp_format_job *job, pp_error *err)
{
    if (f->single && job->n != 1)
        return pp_error_field(err, "--format", "%s takes one training, not %zu", f->name, job->n);
    for (const pp_told_field *field = f->fields; field->name; field++) {
        if (field->needed && !json_object_get(job->told, field->name))
            return pp_error_field(err, field->name,
                                  "is needed for %s and was not measured: --set %s=VALUE", f->name,
                                  field->name);
    }
    return f->write(job, err);
}
