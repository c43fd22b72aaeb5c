/* What the tests of session and injection share: sessions and pods from JSON text. */
#ifndef PP_CONTROLLER_TESTS_FIXTURES_H
#define PP_CONTROLLER_TESTS_FIXTURES_H

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "controller/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE_UID "5b0c2a3e-6a65-4b9e-a8a5-1d8f2f3c4d5e"
#define FIXTURE_CREATED INT64_C(1769000000000000000) /* 2026-01-21T12:53:20Z */
#define FIXTURE_SECOND INT64_C(1000000000)

/* The resources that a configuration without any names. */
static char *const fixture_gpu_names[] = {(char *)(uintptr_t) "nvidia.com/gpu",
                                          (char *)(uintptr_t) "amd.com/gpu"};
static const pp_strings fixture_gpus = {(char **)(uintptr_t)fixture_gpu_names, 2};

/* JSON with ' in place of ". */
static inline json_t *fixture_json(const char *text)
{
    PP_CLEANUP_FREE char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) {
        if (*c == '\'')
            *c = '"';
    }
    pp_error err = {0};
    json_t *value = pp_json_parse(copy, strlen(copy), &err);
    if (!value)
        fail_msg("%s in %s", err.message, text);
    return value;
}

static inline json_t *fixture_file(const char *path)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", PP_SOURCE_DIR, path);
    json_error_t why;
    json_t *value = json_load_file(full, JSON_REJECT_DUPLICATES, &why);
    if (!value)
        fail_msg("%s: %s", full, why.text);
    return value;
}

/* A session object with this spec and status (both stolen; status may be NULL). */
static inline json_t *fixture_object(json_t *spec, json_t *status)
{
    json_t *object =
        json_pack("{s:s, s:{s:s, s:s, s:s, s:i, s:s}, s:o}", "kind", "ProfileSession", "metadata",
                  "namespace", "ml", "name", "dlrm", "uid", FIXTURE_UID, "generation", 3,
                  "creationTimestamp", "2026-01-21T12:53:20Z", "spec", spec);
    if (status)
        (void)json_object_set_new(object, "status", status);
    assert_non_null(object);
    return object;
}

static inline pp_session *fixture_session(const char *spec)
{
    PP_CLEANUP_JSON json_t *object = fixture_object(fixture_json(spec), NULL);
    pp_session *session = NULL;
    pp_error err = {0};
    if (pp_session_decode(object, &session, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    return session;
}

#endif
