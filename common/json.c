#include "common/json.h"

#include "common/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_STRING_MAX = 65536, /* bytes */
    DEFAULT_LIST_MAX = 10000,   /* items */
    PATH_MAX_BYTES = 160,
};

void pp_strings_free(pp_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (pp_strings){0};
}

int pp_strings_add(pp_strings *strings, const char *text, pp_error *err)
{
    char **items = realloc(strings->items, (strings->count + 1) * sizeof *items);
    if (!items)
        return pp_error_nomem(err);
    strings->items = items;
    char *copy = strdup(text);
    if (!copy)
        return pp_error_nomem(err);
    items[strings->count++] = copy;
    return 0;
}

size_t pp_strings_index(const pp_strings *strings, const char *text)
{
    size_t i = 0;
    while (i < strings->count && strcmp(strings->items[i], text) != 0)
        i++;
    return i;
}

bool pp_strings_contain(const pp_strings *strings, const char *text)
{
    return pp_strings_index(strings, text) < strings->count;
}

int pp_strings_add_once(pp_strings *strings, const char *text, pp_error *err)
{
    return pp_strings_contain(strings, text) ? 0 : pp_strings_add(strings, text, err);
}

static void join_path(char *out, const char *path, const char *name)
{
    (void)snprintf(out, PATH_MAX_BYTES, "%s%s%s", path ? path : "", path && *path ? "." : "", name);
}

static int check_string(const json_t *value, size_t limit, const char *path, pp_error *err)
{
    if (!json_is_string(value))
        return pp_error_field(err, path, "must be a string");
    if (json_string_length(value) > limit)
        return pp_error_field(err, path, "must be at most %zu bytes long", limit);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return pp_error_field(err, path, "must not contain a NUL character");
    return 0;
}

static int decode_string(const json_t *value, int64_t max, const char *path, char **out,
                         pp_error *err)
{
    if (check_string(value, max ? (size_t)max : DEFAULT_STRING_MAX, path, err) < 0)
        return -1;
    char *copy = strdup(json_string_value(value));
    if (!copy)
        return pp_error_nomem(err);
    free(*out);
    *out = copy;
    return 0;
}

static int decode_strings(const json_t *value, int64_t max, const char *path, pp_strings *out,
                          pp_error *err)
{
    if (!json_is_array(value))
        return pp_error_field(err, path, "must be a list of strings");
    size_t limit = max ? (size_t)max : DEFAULT_LIST_MAX;
    if (json_array_size(value) > limit)
        return pp_error_field(err, path, "must have at most %zu items", limit);
    pp_strings_free(out);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        char at[PATH_MAX_BYTES];
        (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (check_string(item, DEFAULT_STRING_MAX, at, err) < 0 ||
            pp_strings_add(out, json_string_value(item), err) < 0)
            return -1;
    }
    return 0;
}

static int decode_int(const json_t *value, int64_t max, const char *path, int64_t *out,
                      pp_error *err)
{
    if (!json_is_integer(value))
        return pp_error_field(err, path, "must be an integer");
    if (max && json_integer_value(value) > max)
        return pp_error_field(err, path, "must be at most %lld", (long long)max);
    *out = json_integer_value(value);
    return 0;
}

static int decode_text(const json_t *value, pp_json_type type, const char *path, int64_t *out,
                       pp_error *err)
{
    if (check_string(value, DEFAULT_STRING_MAX, path, err) < 0)
        return -1;
    pp_error why = {0};
    int rc = type == PP_JSON_DURATION ? pp_duration_parse(json_string_value(value), out, &why)
                                      : pp_time_parse(json_string_value(value), out, &why);
    return rc < 0 ? pp_error_field(err, path, "%s", why.message) : 0;
}

static int decode_value(const json_t *value, const pp_json_field *field, const char *path,
                        void *slot, pp_error *err)
{
    switch (field->type) {
    case PP_JSON_STRING:
        return decode_string(value, field->max, path, slot, err);
    case PP_JSON_BOOL:
        if (!json_is_boolean(value))
            return pp_error_field(err, path, "must be true or false");
        *(bool *)slot = json_is_true(value);
        return 0;
    case PP_JSON_INT:
        return decode_int(value, field->max, path, slot, err);
    case PP_JSON_NUMBER:
        if (!json_is_number(value))
            return pp_error_field(err, path, "must be a number");
        *(double *)slot = json_number_value(value);
        return 0;
    case PP_JSON_STRINGS:
        return decode_strings(value, field->max, path, slot, err);
    case PP_JSON_DURATION:
    case PP_JSON_TIME:
        return decode_text(value, field->type, path, slot, err);
    case PP_JSON_VALUE:
        json_decref(*(json_t **)slot);
        *(json_t **)slot = json_incref((json_t *)(uintptr_t)value);
        return 0;
    }
    return pp_error_set(err, PP_ERR_INTERNAL, "unknown field type");
}

static int refuse_unknown(const json_t *object, const pp_json_field *fields, const char *path,
                          pp_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const pp_json_field *f = fields;
        while (f->name && strcmp(f->name, key) != 0)
            f++;
        if (!f->name) {
            char at[PATH_MAX_BYTES];
            join_path(at, path, key);
            return pp_error_field(err, at, "is not a known key");
        }
    }
    return 0;
}

int pp_json_decode(const json_t *object, const pp_json_field *fields, bool strict, const char *path,
                   void *out, pp_error *err)
{
    if (!json_is_object(object))
        return pp_error_field(err, path, "must be an object");
    if (strict && refuse_unknown(object, fields, path, err) < 0)
        return -1;
    for (const pp_json_field *f = fields; f->name; f++) {
        char at[PATH_MAX_BYTES];
        join_path(at, path, f->name);
        const json_t *value = json_object_get(object, f->name);
        if (!value || json_is_null(value)) {
            if (f->required)
                return pp_error_field(err, at, "is required");
            continue;
        }
        if (decode_value(value, f, at, (char *)out + f->offset, err) < 0)
            return -1;
    }
    return 0;
}

void pp_json_free_fields(const pp_json_field *fields, void *out)
{
    for (const pp_json_field *f = fields; f->name; f++) {
        void *slot = (char *)out + f->offset;
        if (f->type == PP_JSON_STRING) {
            free(*(char **)slot);
            *(char **)slot = NULL;
        } else if (f->type == PP_JSON_STRINGS) {
            pp_strings_free(slot);
        } else if (f->type == PP_JSON_VALUE) {
            json_decref(*(json_t **)slot);
            *(json_t **)slot = NULL;
        }
    }
}

json_t *pp_json_parse(const char *text, size_t n, pp_error *err)
{
    json_error_t why;
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!value)
        (void)pp_error_set(err, PP_ERR_INVALID, "not JSON: line %d: %s", why.line, why.text);
    return value;
}

static const json_t *follow(const json_t *object, va_list keys)
{
    const char *key;
    while (object && (key = va_arg(keys, const char *)))
        object = json_object_get(object, key);
    return object;
}

const json_t *pp_json_get(const json_t *object, ...)
{
    va_list keys;
    va_start(keys, object);
    const json_t *value = follow(object, keys);
    va_end(keys);
    return value;
}

const char *pp_json_get_string(const json_t *object, ...)
{
    va_list keys;
    va_start(keys, object);
    const json_t *value = follow(object, keys);
    va_end(keys);
    return json_string_value(value);
}

/* Bytes of the character at `text`; 0: there is none. */
static size_t character_at(const char *text)
{
    for (size_t n = 1; n <= 4 && text[n - 1]; n++) {
        json_t *one = json_stringn(text, n);
        json_decref(one);
        if (one)
            return n;
    }
    return 0;
}

/* Whether a text is what a cut leaves of a character: its first byte, and not all of the others. */
static bool is_cut(const char *text)
{
    const unsigned char first = (unsigned char)*text;
    size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2, have = 1;
    while (((unsigned char)text[have] & 0xc0U) == 0x80U)
        have++;
    return first >= 0xc2 && first <= 0xf4 && have < n && !text[have];
}

json_t *pp_json_text(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text);
    if (!copy)
        return value;
    for (size_t at = 0, n; copy[at]; at += n ? n : 1) {
        n = character_at(copy + at);
        if (n == 0)
            copy[at] = is_cut(copy + at) ? '\0' : '?';
        if (!copy[at])
            break;
    }
    value = json_string(copy);
    free(copy);
    return value;
}

const json_t *pp_json_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *known = pp_json_get_string(json_array_get(list, i), "name", NULL);
        if (known && strcmp(known, name) == 0)
            return json_array_get(list, i);
    }
    return NULL;
}

/* What jansson 2.14 takes on a machine of 64 bits, malloc's own share included. */
enum {
    OBJECT_BYTES = 208, /* its table's first eight buckets too */
    MEMBER_BYTES = 80,  /* without the key */
    ARRAY_BYTES = 112,  /* room for the first eight items too */
    ITEM_BYTES = 16,    /* twice a pointer: the room doubles */
    STRING_BYTES = 64,
    NUMBER_BYTES = 32,
};

static size_t members_bytes(const json_t *object)
{
    size_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        sum += MEMBER_BYTES + strlen(key) + pp_json_bytes(value);
    }
    return sum;
}

size_t pp_json_bytes(const json_t *value)
{
    size_t sum = 0;
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        return OBJECT_BYTES + members_bytes(value);
    case JSON_ARRAY:
        for (size_t i = 0; i < json_array_size(value); i++)
            sum += ITEM_BYTES + pp_json_bytes(json_array_get(value, i));
        return ARRAY_BYTES + sum;
    case JSON_STRING:
        return STRING_BYTES + json_string_length(value);
    case JSON_INTEGER:
    case JSON_REAL:
        return NUMBER_BYTES;
    default:
        return 0;
    }
}
