/* What the tests of injection share: options, amounts, and patches put to pods. */
#ifndef PP_CONTROLLER_TESTS_INJECT_FIXTURES_H
#define PP_CONTROLLER_TESTS_INJECT_FIXTURES_H

#include "controller/injection/inject.h"
#include "controller/tests/fixtures.h"

#include <stdlib.h>

static inline pp_inject_options options(void)
{
    return (pp_inject_options){
        .image = "registry.example/precisionprobe-sidecar:0.1.0",
        .endpoint = "wss://precisionprobe.system.svc:443/v1/ingest",
        .ca = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        .pull_policy = "IfNotPresent",
        .native_sidecar = true,
        .cpu = "",
        .memory = "",
        .sampling_memory = "",
        .gpu_resources = &fixture_gpus,
        .capture_seconds = 30,
    };
}

/** The amounts of these tests: digits with m, Mi, Gi or nothing behind. None counts as 0. */
static inline double units(const json_t *amount)
{
    char *end;
    if (!amount)
        return 0;
    if (json_is_number(amount))
        return json_number_value(amount);
    double value = strtod(json_string_value(amount), &end);
    if (strcmp(end, "m") == 0)
        return value / 1000;
    if (strcmp(end, "Mi") == 0)
        return value * (1 << 20);
    if (strcmp(end, "Gi") == 0)
        return value * (1 << 30);
    assert_string_equal(end, "");
    return value;
}

/* ---- RFC 6902, as far as patches use it, so that the pod that comes out can be looked at ---- */

static inline void unescape(char *part)
{
    char *to = part;
    for (const char *from = part; *from; from++) {
        if (*from == '~') {
            from++;
            *to++ = *from == '0' ? '~' : '/';
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

static inline void put(json_t *parent, const char *last, json_t *value, bool replace)
{
    if (json_is_array(parent)) {
        size_t at = strcmp(last, "-") == 0 ? json_array_size(parent) : strtoul(last, NULL, 10);
        assert_true(at < json_array_size(parent) + !replace);
        assert_int_equal(
            replace ? json_array_set(parent, at, value) : json_array_insert(parent, at, value), 0);
        return;
    }
    assert_true(json_is_object(parent));
    assert_true(!replace || json_object_get(parent, last));
    assert_int_equal(json_object_set(parent, last, value), 0);
}

static inline void apply_op(json_t *pod, const json_t *op)
{
    const char *name = pp_json_get_string(op, "op", NULL);
    PP_CLEANUP_FREE char *path = strdup(pp_json_get_string(op, "path", NULL));
    json_t *parent = pod;
    assert_int_equal(path[0], '/');
    char *part = path + 1, *slash;
    while ((slash = strchr(part, '/'))) {
        *slash = '\0';
        unescape(part);
        parent = json_is_array(parent) ? json_array_get(parent, strtoul(part, NULL, 10))
                                       : json_object_get(parent, part);
        assert_non_null(parent);
        part = slash + 1;
    }
    unescape(part);
    assert_true(strcmp(name, "add") == 0 || strcmp(name, "replace") == 0);
    put(parent, part, json_object_get(op, "value"), name[0] == 'r');
}

static inline json_t *apply(const json_t *pod, const json_t *patch)
{
    json_t *copy = json_deep_copy(pod);
    for (size_t i = 0; i < json_array_size(patch); i++)
        apply_op(copy, json_array_get(patch, i));
    return copy;
}

static inline const json_t *named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *known = pp_json_get_string(json_array_get(list, i), "name", NULL);
        if (known && strcmp(known, name) == 0)
            return json_array_get(list, i);
    }
    return NULL;
}

static inline const char *env_value(const json_t *container, const char *name)
{
    return pp_json_get_string(named(json_object_get(container, "env"), name), "value", NULL);
}

#endif
