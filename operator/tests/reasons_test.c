/*
 * docs/troubleshooting.md has every reason that conditions, targets and Events give. Reasons are
 * CamelCase words in the sources that name them; what else is written so there is listed below.
 */
#include "common/cleanup.h"
#include "common/file.h"

#include <ctype.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MAX_SOURCE = 1 << 20,
    MIN_REASONS = 80,
    MIN_LETTERS = 5 /* the shortest reason has as many */
};

static const char *const sources[] = {
    "controller/session/session*.c",
    "controller/pods/startup.c",
    "controller/injection/inject_*.c",
    "controller/pods/unprobed.c",
    "controller/pods/creation.c",
    "controller/pods/unheard.c",
    "operator/*.c",
    "operator/state/*.c",
    "operator/workloads/*.c",
    "operator/cache/*.c",
    "operator/installation/*.c",
    "operator/pods/*.c",
    "operator/patterns/*.c",
    "operator/samples/*.c",
    "operator/results/*.c",
};

/* No reasons of ours. */
static const char *const others[] = {
    /* kinds, scopes, operators and states of Kubernetes */
    "AdmissionReview",
    "BestEffort",
    "CREATE",
    "Container",
    "DeleteOptions",
    "Deployment",
    "DoesNotExist",
    "Exists",
    "FailedCreate",
    "False",
    "Lease",
    "MutatingWebhookConfiguration",
    "NotBestEffort",
    "NotIn",
    "NotTerminating",
    "Opaque",
    "PodScheduled",
    "PriorityClass",
    "Running",
    "ReplicaSet",
    "OnFailure",
    "Secret",
    "SelfSubjectAccessReview",
    "Terminating",
    "Unknown",
    "Unschedulable",
    /* why containers of a pod wait, by the kubelet */
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "DisruptionTarget",
    "ErrImageNeverPull",
    "ErrImagePull",
    "Evicted",
    "OutOf",
    "TopologyAffinityError",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "NodeLost",
    "NodeShutdown",
    "PostStartHookError",
    "PreCreateHookError",
    "PreStartHookError",
    "Preempting",
    "RegistryUnavailable",
    "RunContainerError",
    "Shutdown",
    "SignatureValidationFailed",
    "StartError",
    "Terminated",
    /* values of fields */
    "Always",
    "Backward",
    "Regression",
    "Forward",
    "IfNotPresent",
    "Replay",
    "Never",
    "Optimizer",
    "Report",
    /* our kind, and actions of Events */
    "ProfileSession",
    "Reconcile",
    "Release",
    /* phases, which are reasons of Ready and others, and the conditions */
    "Pending",
    "Collecting",
    "Finishing",
    "Accepted",
    "Injected",
    "MetricsAvailable",
    "Sampled",
    "Ready",
    "Reconciling",
    "Stalled",
    "Finished",
    "Succeeded",
    "Failed",
    "PYTHONPATH",
};

static bool is_other(const char *word)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(word, others[i]) == 0)
            return true;
    }
    return false;
}

/* The word in quotes that begins here: a capital, then letters. */
static bool take_word(const char *quote, char *out, size_t size)
{
    size_t n = 0;
    while (isalpha((unsigned char)quote[1 + n]))
        n++;
    if (n < MIN_LETTERS || n >= size || !isupper((unsigned char)quote[1]) || quote[1 + n] != '"')
        return false;
    memcpy(out, quote + 1, n);
    out[n] = '\0';
    return true;
}

static int look_at(const char *path, const char *page, char *missing, size_t size)
{
    int found = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(path, MAX_SOURCE, NULL, NULL);
    assert_non_null(text);
    for (const char *at = strchr(text, '"'); at; at = strchr(at + 1, '"')) {
        char word[64];
        char quoted[68];
        if (!take_word(at, word, sizeof word) || is_other(word))
            continue;
        found++;
        (void)snprintf(quoted, sizeof quoted, "`%s`", word);
        size_t used = strlen(missing);
        if (!strstr(page, quoted) && !strstr(missing, word))
            (void)snprintf(missing + used, size - used, " %s (%s)", word,
                           path + strlen(PP_SOURCE_DIR) + 1);
    }
    return found;
}

static void the_page_has_every_reason(void **state)
{
    (void)state;
    char missing[4096] = "";
    int found = 0;
    PP_CLEANUP_FREE char *page =
        pp_file_read(PP_SOURCE_DIR "/docs/troubleshooting.md", MAX_SOURCE, NULL, NULL);
    assert_non_null(page);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        char pattern[512];
        glob_t files;
        (void)snprintf(pattern, sizeof pattern, "%s/%s", PP_SOURCE_DIR, sources[i]);
        assert_int_equal(glob(pattern, 0, NULL, &files), 0);
        for (size_t j = 0; j < files.gl_pathc; j++)
            found += look_at(files.gl_pathv[j], page, missing, sizeof missing);
        globfree(&files);
    }
    if (missing[0])
        fail_msg("docs/troubleshooting.md lacks:%s", missing);
    assert_true(found >= MIN_REASONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_page_has_every_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
