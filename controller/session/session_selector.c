/* A session's selector: the API object's part into a pp_selector, and the rules of it. */
#include "controller/session/session_selector.h"
#include "common/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_text(const char *text, char **ret, pp_error *err)
{
    *ret = strdup(text);
    return *ret ? 0 : pp_error_nomem(err);
}

static bool alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Of a label: 1 to 63 letters, digits, "-", "_" and ".", the first and last no sign. */
static bool is_label_name(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > 63 || !alphanumeric(text[0]) || !alphanumeric(text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!alphanumeric(text[i]) && !strchr("-_.", text[i]))
            return false;
    }
    return true;
}

/* A name, or one after a domain and "/": parts of lower case letters, digits and "-". */
static bool is_label_key(const char *text)
{
    size_t n = strcspn(text, "/");
    if (!text[n])
        return is_label_name(text);
    for (size_t i = 0; i < n; i++) {
        bool edge = i == 0 || i == n - 1 || text[i - 1] == '.' || text[i + 1] == '.';
        bool sign = text[i] == '.' || text[i] == '-';
        if (sign ? edge : !alphanumeric(text[i]) || (text[i] >= 'A' && text[i] <= 'Z'))
            return false;
    }
    return n > 0 && n <= 253 && is_label_name(text + n + 1);
}

static int check_label_key(const char *key, const char *at, pp_error *err)
{
    return is_label_key(key)
               ? 0
               : pp_error_field(err, at, "has a key that no label can have: \"%.60s\"", key);
}

static int check_label_value(const char *value, const char *at, pp_error *err)
{
    return !*value || is_label_name(value)
               ? 0
               : pp_error_field(err, at, "has a value that no label can have: \"%.60s\"", value);
}

static int decode_labels(const json_t *labels, pp_selector *ret, pp_error *err)
{
    static const char at[] = "spec.selector.matchLabels";
    if (!labels)
        return 0;
    if (!json_is_object(labels) || json_object_size(labels) > PP_SESSION_MAX_LABELS)
        return pp_error_field(err, at, "must be an object with at most %d labels",
                              PP_SESSION_MAX_LABELS);
    ret->labels = calloc(json_object_size(labels) + 1, sizeof *ret->labels);
    if (!ret->labels)
        return pp_error_nomem(err);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)labels, key, value)
    {
        if (!json_is_string(value))
            return pp_error_field(err, at, "the value of \"%.60s\" must be a string", key);
        if (check_label_key(key, at, err) < 0 ||
            check_label_value(json_string_value(value), at, err) < 0)
            return -1;
        pp_label *label = &ret->labels[ret->n_labels++];
        if (copy_text(key, &label->key, err) < 0 ||
            copy_text(json_string_value(value), &label->value, err) < 0)
            return -1;
    }
    return 0;
}

typedef struct raw_requirement {
    char *key;
    char *op;
    pp_strings values;
} raw_requirement;

static const pp_json_field requirement_fields[] = {
    {"key", PP_JSON_STRING, offsetof(raw_requirement, key), true, 317},
    {"operator", PP_JSON_STRING, offsetof(raw_requirement, op), true, 0},
    {"values", PP_JSON_STRINGS, offsetof(raw_requirement, values), false, 64},
    {0},
};

static int selector_operator(const char *name, pp_selector_operator *ret)
{
    static const char *const names[] = {
        [PP_SELECTOR_IN] = "In",
        [PP_SELECTOR_NOT_IN] = "NotIn",
        [PP_SELECTOR_EXISTS] = "Exists",
        [PP_SELECTOR_DOES_NOT_EXIST] = "DoesNotExist",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (pp_selector_operator)i;
            return 0;
        }
    }
    return -1;
}

static int check_requirement(const raw_requirement *raw, const char *at, pp_selector_operator *op,
                             pp_error *err)
{
    if (selector_operator(raw->op, op) < 0)
        return pp_error_field(err, at, "operator must be In, NotIn, Exists or DoesNotExist");
    bool takes_values = *op == PP_SELECTOR_IN || *op == PP_SELECTOR_NOT_IN;
    if (takes_values && raw->values.count == 0)
        return pp_error_field(err, at, "values must not be empty for In and NotIn");
    if (!takes_values && raw->values.count > 0)
        return pp_error_field(err, at, "values must be empty for Exists and DoesNotExist");
    for (size_t i = 0; i < raw->values.count; i++) {
        if (check_label_value(raw->values.items[i], at, err) < 0)
            return -1;
    }
    return check_label_key(raw->key, at, err);
}

static int decode_requirement(const json_t *item, const char *at, pp_selector_requirement *ret,
                              pp_error *err)
{
    raw_requirement raw = {0};
    int rc = pp_json_decode(item, requirement_fields, false, at, &raw, err);
    if (rc == 0)
        rc = check_requirement(&raw, at, &ret->op, err);
    if (rc == 0) {
        ret->key = PP_TAKE(raw.key);
        ret->values = raw.values;
        raw.values = (pp_strings){0};
    }
    pp_json_free_fields(requirement_fields, &raw);
    return rc;
}

static int decode_expressions(const json_t *list, pp_selector *ret, pp_error *err)
{
    static const char path[] = "spec.selector.matchExpressions";
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > PP_SESSION_MAX_EXPRESSIONS)
        return pp_error_field(err, path, "must be a list of at most %d items",
                              PP_SESSION_MAX_EXPRESSIONS);
    ret->requirements = calloc(json_array_size(list) + 1, sizeof *ret->requirements);
    if (!ret->requirements)
        return pp_error_nomem(err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char at[64];
        (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (decode_requirement(json_array_get(list, i), at, &ret->requirements[i], err) < 0)
            return -1;
        ret->n_requirements++;
    }
    return 0;
}

/* Whether the selector asks for a label of this key, whichever its value. */
static bool asks_for(const pp_selector *selector, const char *key)
{
    for (size_t i = 0; i < selector->n_labels; i++) {
        if (strcmp(selector->labels[i].key, key) == 0)
            return true;
    }
    for (size_t i = 0; i < selector->n_requirements; i++) {
        const pp_selector_requirement *r = &selector->requirements[i];
        if ((r->op == PP_SELECTOR_IN || r->op == PP_SELECTOR_EXISTS) && strcmp(r->key, key) == 0)
            return true;
    }
    return false;
}

static int check_some_pod_can_match(const pp_selector *selector, pp_error *err)
{
    for (size_t i = 0; i < selector->n_requirements; i++) {
        const pp_selector_requirement *r = &selector->requirements[i];
        if (r->op == PP_SELECTOR_DOES_NOT_EXIST && asks_for(selector, r->key))
            return pp_error_field(err, "spec.selector.matchExpressions",
                                  "match no pod: the label %.60s cannot be there and, by "
                                  "DoesNotExist, not be there",
                                  r->key);
    }
    return 0;
}

int pp_session_decode_selector(const json_t *spec, pp_selector *ret, pp_error *err)
{
    const json_t *selector = json_object_get(spec, "selector");
    if (!json_is_object(selector))
        return pp_error_field(err, "spec.selector", "is required");
    if (decode_labels(json_object_get(selector, "matchLabels"), ret, err) < 0 ||
        decode_expressions(json_object_get(selector, "matchExpressions"), ret, err) < 0)
        return -1;
    if (ret->n_labels == 0 && ret->n_requirements == 0)
        return pp_error_field(err, "spec.selector",
                              "must not be empty: it would match every pod of the namespace");
    return check_some_pod_can_match(ret, err);
}

void pp_session_free_selector(pp_selector *selector)
{
    for (size_t i = 0; i < selector->n_labels; i++) {
        free(selector->labels[i].key);
        free(selector->labels[i].value);
    }
    for (size_t i = 0; i < selector->n_requirements; i++) {
        free(selector->requirements[i].key);
        pp_strings_free(&selector->requirements[i].values);
    }
    free(selector->labels);
    free(selector->requirements);
}
