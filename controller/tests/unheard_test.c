/* Injected pods that run and are not heard from: what is seen of them, when, and what is said. */
#include "controller/pods/unheard.h"

#include "controller/tests/inject_fixtures.h"

#define S(seconds) ((int64_t)(seconds)*INT64_C(1000000000))
#define ENDPOINT "wss://precisionprobe.system.svc/v1/ingest"

/* A pod as the webhook leaves it, with this command and status. */
static json_t *injected(const char *command, const char *status)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "{'metadata': {'name': 'p'}, 'spec': {'containers': [{'name': 'train', 'image':"
                   " 'i', %s 'resources': {'limits': {'nvidia.com/gpu': '1'}}}, {'name': 'web',"
                   " 'image': 'w', 'command': ['/bin/web']}]}}",
                   command);
    PP_CLEANUP_JSON json_t *pod = fixture_json(text);
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
    json_t *got = apply(pod, patch);
    (void)json_object_set_new(got, "status", fixture_json(status));
    return got;
}

#define RUNS(name, at) "{'name': '" name "', 'state': {'running': {'startedAt': '" at "'}}}"
#define WAITS(name, more) "{'name': '" name "', 'state': {'waiting': {}}" more "}"
#define ENDED(name) "{'name': '" name "', 'state': {'terminated': {'exitCode': 0}}}"
#define AT "2026-01-02T03:04:05Z"
#define AT_NS INT64_C(1767323045000000000)
#define STATUS(init, own) "{'initContainerStatuses': [" init "], 'containerStatuses': [" own "]}"

static void test_what_runs(void **state)
{
    (void)state;
    static const struct {
        const char *command, *status;
        bool agent, trainer;
        const char *program;
    } cases[] = {
        {"", STATUS(RUNS("precisionprobe-agent", AT), RUNS("web", AT) "," RUNS("train", AT)), true,
         true, ""},
        {"'command': ['/bin/sh', '-c', 'secret'],",
         STATUS(RUNS("precisionprobe-agent", AT), RUNS("train", AT)), true, true, "sh"},
        {"'command': ['python3', 'x.py'],",
         STATUS(RUNS("precisionprobe-agent", AT), WAITS("train", "") "," RUNS("web", AT)), true,
         false, ""},
        /* An ordinary sidecar. */
        {"", STATUS("", RUNS("precisionprobe-agent", AT) "," ENDED("train")), true, false, ""},
        /* One that fails again and again, one that waits for its turn, and one that has left. */
        {"",
         STATUS(WAITS("precisionprobe-agent", ", 'lastState': {'terminated': {'exitCode': 1}}"),
                ""),
         true, false, ""},
        {"", STATUS(WAITS("precisionprobe-agent", ""), RUNS("train", AT)), false, true, ""},
        {"", STATUS(ENDED("precisionprobe-agent"), RUNS("train", AT)), false, true, ""},
        {"", STATUS(WAITS("precisionprobe-agent", ""), WAITS("train", "")), false, false, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *pod = injected(cases[i].command, cases[i].status);
        pp_unheard_pod runs;
        assert_int_equal(pp_unheard_read(pod, &runs), cases[i].agent || cases[i].trainer);
        assert_int_equal(runs.agent_runs, cases[i].agent);
        assert_int_equal(runs.trainer_runs, cases[i].trainer);
        assert_string_equal(runs.program, cases[i].program);
        assert_string_equal(runs.container, cases[i].trainer ? "train" : "");
        assert_true(runs.trainer_start == (cases[i].trainer ? AT_NS : 0));
    }
    PP_CLEANUP_JSON json_t *own =
        fixture_json("{'metadata': {'name': 'p'}, 'spec': {'containers':"
                     " [{'name': 'train'}]}, 'status': " STATUS("", RUNS("train", AT)) "}");
    pp_unheard_pod runs;
    assert_false(pp_unheard_read(own, &runs));
}

static void assert_cause(const pp_unheard *seen, pp_unheard_cause cause, int64_t at)
{
    int64_t when;
    assert_int_equal(pp_unheard_look(seen, &when), cause);
    assert_true(when == at);
}

/* A minute counts from when the agent could have come. */
static void test_agents(void **state)
{
    (void)state;
    pp_unheard seen = {.agent_since = S(100)};
    assert_cause(&seen, PP_UNHEARD_NONE, 0); /* nobody is let in here */
    seen.open_since = S(10);
    assert_cause(&seen, PP_UNHEARD_AGENT, S(145));
    seen.open_since = S(500); /* a restart, another leader, the store is back */
    assert_cause(&seen, PP_UNHEARD_AGENT, S(545));
    seen.shut_out = true; /* that is named already */
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    seen.shut_out = false;
    seen.agent_since = 0;
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    seen.agent_since = S(100);
    seen.connected = seen.was_connected = true;
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    seen.connected = false; /* lost, not missing */
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
}

static void test_hooks(void **state)
{
    (void)state;
    pp_unheard seen = {.open_since = S(1),
                       .agent_since = S(5),
                       .trainer_since = S(8),
                       .connected = true,
                       .was_connected = true};
    assert_cause(&seen, PP_UNHEARD_NONE, 0); /* an agent of an earlier release tells nothing */
    seen.told = true;
    assert_cause(&seen, PP_UNHEARD_HOOK, S(53));
    seen.trainer_since = 0;
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    seen.trainer_since = S(30); /* started anew */
    assert_cause(&seen, PP_UNHEARD_HOOK, S(75));
    seen.hook.loaded = true;
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    (void)strcpy(seen.hook.libc, "musl"); /* what is Python of the hook loads there, no more */
    assert_cause(&seen, PP_UNHEARD_HOOK, S(75));
    seen.hook.torch = true;
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
    seen.hook = (pp_wire_hook){0};
    (void)snprintf(seen.hook.refusal, sizeof seen.hook.refusal, "several GPUs");
    assert_cause(&seen, PP_UNHEARD_REFUSED, seen.open_since);
    seen.connected = false; /* what is there now nobody knows */
    assert_cause(&seen, PP_UNHEARD_NONE, 0);
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        pp_unheard_cause cause;
        const char *program, *libc, *reason, *part;
    } cases[] = {
        {PP_UNHEARD_AGENT, "", "", "AgentNotConnected", "reaches " ENDPOINT ":"},
        {PP_UNHEARD_HOOK, "", "", "HookNotLoaded", "command is the image's own"},
        {PP_UNHEARD_REFUSED, "", "", "ProcessRefused", "not profiled: several GPUs;"},
        {PP_UNHEARD_HOOK, "sh", "glibc", "HookNotLoaded", "command is sh, a shell"},
        {PP_UNHEARD_HOOK, "sleep", "", "HookNotLoaded", "command is sleep. Where it is still"},
        {PP_UNHEARD_HOOK, "sh", "musl", "HookNotLoaded", "has musl"},
        {PP_UNHEARD_HOOK, "", "none", "HookNotLoaded", "a static program"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_unheard_pod pod = {.container = "train"};
        pp_wire_hook hook = {.refusal = "several GPUs"};
        pp_session_pod_trouble said;
        (void)snprintf(pod.program, sizeof pod.program, "%s", cases[i].program);
        (void)snprintf(hook.libc, sizeof hook.libc, "%s", cases[i].libc);
        pp_unheard_tell(cases[i].cause, &pod, &hook, ENDPOINT, &said);
        assert_string_equal(said.reason, cases[i].reason);
        assert_non_null(strstr(said.text, cases[i].part));
        assert_true(said.of_pod);
    }
}

/* However long names are, what to do is there. */
static void test_words_fit(void **state)
{
    (void)state;
    pp_unheard_pod pod;
    pp_wire_hook hook = {0};
    pp_session_pod_trouble said;
    char endpoint[400];
    (void)memset(&pod, 'x', sizeof pod);
    (void)memset(endpoint, 'e', sizeof endpoint);
    pod.container[sizeof pod.container - 1] = pod.program[sizeof pod.program - 1] = '\0';
    endpoint[sizeof endpoint - 1] = '\0';
    pp_unheard_tell(PP_UNHEARD_HOOK, &pod, &hook, endpoint, &said);
    assert_non_null(strstr(said.text, "in PYTHONPATH"));
    pp_unheard_tell(PP_UNHEARD_AGENT, &pod, &hook, endpoint, &said);
    assert_non_null(strstr(said.text, "create the pod anew"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_runs), cmocka_unit_test(test_agents),
        cmocka_unit_test(test_hooks),     cmocka_unit_test(test_words),
        cmocka_unit_test(test_words_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
