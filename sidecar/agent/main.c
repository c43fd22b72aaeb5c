/* precisionprobe-agent: what the webhook puts beside a trainer. */
#include "common/log.h"
#include "sidecar/agent/agent.h"
#include "sidecar/agent/install.h"
#include "sidecar/agent/spool.h"
#include "sidecar/ring.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define HOOK_DIRECTORY "/usr/share/precisionprobe/hook"
#define TERMINATION_LOG "/dev/termination-log" /* the kubelet's default */
#define CONFIG_DIRECTORY "/etc/precisionprobe/identity"

enum {
    OPTION_FROM = 256,
    OPTION_SETTINGS,
    OPTION_TOKEN,
    OPTION_CA,
    OPTION_RING,
    OPTION_SPOOL,
    OPTION_DUMP,
    OPTION_LAST_WORDS,
    OPTION_BEST_EFFORT
};

enum { MAX_DESCRIPTORS = 1024 };

typedef struct arguments {
    const char *verb;
    const char *directory;
    const char *from;
    bool best_effort;
    pp_agent_options run;
} arguments;

static const struct argp_option options[] = {
    {"from", OPTION_FROM, "DIR", 0, "install: where the hook is (" HOOK_DIRECTORY ")", 0},
    {"best-effort", OPTION_BEST_EFFORT, NULL, 0,
     "install: exit with 0 also where the hook cannot be copied, so that the training starts", 0},
    {"settings", OPTION_SETTINGS, "FILE", 0, "run: the session's settings", 0},
    {"token", OPTION_TOKEN, "FILE", 0, "run: the pod's token for the operator", 0},
    {"ca", OPTION_CA, "FILE", 0, "run: the CA that signed the operator's certificate", 0},
    {"ring", OPTION_RING, "DIR", 0, "run: the volume shared with the trainer", 0},
    {"spool", OPTION_SPOOL, "DIR", 0,
     "run: where batches wait for their acknowledgement (" PP_SPOOL_DIRECTORY ")", 0},
    {"last-words", OPTION_LAST_WORDS, "FILE", 0,
     "run: the container's termination log (" TERMINATION_LOG ")", 0},
    {"dump", OPTION_DUMP, NULL, 0, "run: print batches instead of sending them", 0},
    {0},
};

static void parse_word(arguments *a, const char *word, struct argp_state *state)
{
    if (!a->verb)
        a->verb = word;
    else if (!a->directory && strcmp(a->verb, "install") == 0)
        a->directory = word;
    else
        argp_usage(state);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case OPTION_FROM:
        a->from = arg;
        return 0;
    case OPTION_BEST_EFFORT:
        a->best_effort = true;
        return 0;
    case OPTION_SETTINGS:
        a->run.settings_path = arg;
        return 0;
    case OPTION_TOKEN:
        a->run.token_path = arg;
        return 0;
    case OPTION_CA:
        a->run.ca_path = arg;
        return 0;
    case OPTION_RING:
        a->run.ring_directory = arg;
        return 0;
    case OPTION_SPOOL:
        a->run.spool_directory = arg;
        return 0;
    case OPTION_LAST_WORDS:
        a->run.last_words = arg;
        return 0;
    case OPTION_DUMP:
        a->run.dump = true;
        return 0;
    case ARGP_KEY_ARG:
        parse_word(a, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!a->verb || (strcmp(a->verb, "run") != 0 && !a->directory))
            argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void say(const arguments *a, const pp_error *err)
{
    pp_err(NULL, "%s: %s%s%s", a->verb, err->field, *err->field ? " " : "", err->message);
}

/*
 * The program first: a container of the pod runs it, and a pod whose container cannot be started
 * never gets to its training. Without the hook the training starts, unprofiled.
 */
static int install(const arguments *a)
{
    pp_error err = {0};
    int rc = pp_install_environment(a->from, a->directory, &err);
    if (rc == 0 && pp_install(a->from, a->directory, &err) < 0) {
        say(a, &err);
        return a->best_effort ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (rc < 0)
        say(a, &err);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* libwebsockets keeps 16 bytes for each descriptor that there may be, and containers may often have
 * a million and more: of the agent's memory that would be most. */
static void limit_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= MAX_DESCRIPTORS)
        return;
    limit.rlim_cur = MAX_DESCRIPTORS;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int run(const arguments *a)
{
    pp_error err = {0};
    if (strcmp(a->verb, "run") != 0)
        return install(a);
    limit_descriptors();
    int rc = pp_agent_run(&a->run, &err);
    if (rc < 0)
        say(a, &err);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "install DIR\nrun",
        "The part of PrecisionProbe beside a training: `install` copies the hook to where the "
        "trainer finds it, `run` sends what the hook marks.",
        NULL,
        NULL,
        NULL};
    const char *with_trainer = getenv("PRECISIONPROBE_EXIT_WITH_TRAINER");
    const char *ring = getenv("PRECISIONPROBE_RING");
    arguments a = {.from = HOOK_DIRECTORY,
                   .run = {.settings_path = CONFIG_DIRECTORY "/settings.json",
                           .token_path = CONFIG_DIRECTORY "/token",
                           .ca_path = CONFIG_DIRECTORY "/ca.crt",
                           .spool_directory = PP_SPOOL_DIRECTORY,
                           .last_words = TERMINATION_LOG,
                           .ring_directory = ring && *ring ? ring : PP_RING_DIRECTORY,
                           .exit_with_trainer = with_trainer && strcmp(with_trainer, "1") == 0}};
    if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
        return EXIT_FAILURE;
    return run(&a);
}
