#include "cli/run/options.h"

#include "cli/recording/solve.h"
#include "cli/tables/table_kernels.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/time.h"

#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1e9

enum {
    KEY_INCLUDE = 256,
    KEY_EXCLUDE,
    KEY_TYPE,
    KEY_DEPTH,
    KEY_PHASE,
    KEY_SKIP,
    KEY_MAX,
    KEY_BUDGET,
    KEY_CAPTURE,
    KEY_TIMELINE,
    KEY_METHOD,
    KEY_REPLAY_DURATION,
    KEY_PAUSE,
    KEY_MEMORY,
    KEY_SAMPLING_PERIOD,
    KEY_METRIC,
    KEY_HOOK,
    KEY_KERNELS,
    KEY_KEEP_WINDOWS,
};

enum { SAMPLING_PERIOD_NS = 25000, DWELL_MS = 800 };

static const struct argp_option known[] = {
    {"duration", 'd', "TIME", 0,
     "Sampling duration, from the first sampled step, e.g. 2m (the whole run)", 0},
    {"output", 'o', "FOLDER", 0,
     "Write the results there: results.json, layers.csv and what was measured. Those of an earlier "
     "run in it go as COMMAND starts",
     0},
    {"kernels", KEY_KERNELS, "N", OPTION_ARG_OPTIONAL,
     "List the N kernels that take most time below each row of the table, 1 to 20 (3)", 0},
    {"quiet", 'q', NULL, 0, "Show no progress", 0},
    {"layers-include", KEY_INCLUDE, "GLOB", 0, "Only layers of such names (any number)", 1},
    {"layers-exclude", KEY_EXCLUDE, "GLOB", 0, "No layers of such names (any number)", 1},
    {"layers-type", KEY_TYPE, "CLASS", 0, "Only layers of this class (any number)", 1},
    {"depth", KEY_DEPTH, "N", 0, "Modules at this depth stand for all in them", 1},
    {"phase", KEY_PHASE, "PHASE", 0, "Forward, Backward or Optimizer (any number; all)", 1},
    {"metric", KEY_METRIC, "METRIC", 0, "e.g. SMActive (any number; all)", 1},
    {"steps-skip", KEY_SKIP, "N", 0, "Leave out the first N steps", 2},
    {"steps-max", KEY_MAX, "N", 0, "Sample N steps at most", 2},
    {"budget", KEY_BUDGET, "PERCENT", 0, "How much slower the training may become, 0.01 to 50 (1)",
     2},
    {"capture", KEY_CAPTURE, "TIME", 0,
     "Least length of a capture, which is a run of sampled steps (10s)", 2},
    {"stretch", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {"timeline", KEY_TIMELINE, "STEPS", 0, "Keep so many steps of each capture in full (8)", 2},
    {"method", KEY_METHOD, "METHOD", 0,
     "Auto, Regression, Sampling, Replay: each layer replayed by itself while the training waits, "
     "or Job: averages of the job only",
     2},
    {"sampling-period", KEY_SAMPLING_PERIOD, "TIME", 0,
     "Least time between two samples of the GPU, 20us to 1ms (25us)", 2},
    {"fine-period", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {"replay-duration", KEY_REPLAY_DURATION, "TIME", 0,
     "Replay: how long each layer is replayed in each phase (800ms)", 2},
    {"dwell", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {"replay-max-pause", KEY_PAUSE, "TIME", 0,
     "Replay: how long the training may be paused in all (1m)", 2},
    {"max-pause", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {"replay-memory", KEY_MEMORY, "MIB", 0,
     "Replay: how much memory replays may take beside the training (2048)", 2},
    {"keep-windows", KEY_KEEP_WINDOWS, NULL, 0,
     "Keep what each sampled window's estimates come from below the --output folder, 10 MB a "
     "window",
     3},
    {"hook", KEY_HOOK, "FOLDER", 0, "Where the hook's sitecustomize.py is", 3},
    {0},
};

/* What argp collects; the settings' own parser checks it, as it does for an agent in a pod. */
typedef struct collected {
    pp_run_options *out;
    json_t *settings;
    pp_error *err;
} collected;

static const struct {
    int key;
    const char *object; /* NULL: at the top */
    const char *field;
} lists[] = {
    {KEY_INCLUDE, "layers", "include"},
    {KEY_EXCLUDE, "layers", "exclude"},
    {KEY_TYPE, "layers", "types"},
    {KEY_PHASE, NULL, "phases"},
};

static json_t *object_in(json_t *root, const char *key)
{
    json_t *object = key ? json_object_get(root, key) : root;
    if (!object) {
        object = json_object();
        (void)json_object_set_new(root, key, object);
    }
    return object;
}

static void append(collected *c, int key, const char *text)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].key != key)
            continue;
        json_t *object = object_in(c->settings, lists[i].object);
        json_t *list = json_object_get(object, lists[i].field);
        if (!list) {
            list = json_array();
            (void)json_object_set_new(object, lists[i].field, list);
        }
        (void)json_array_append_new(list, json_string(text));
    }
}

static int set_number(json_t *object, const char *field, const char *option, const char *text,
                      bool whole, pp_error *err)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || (whole && value != (double)(json_int_t)value))
        return pp_error_field(err, option, "must be a %s, not %s",
                              whole ? "whole number" : "number", text);
    json_t *number = whole ? json_integer((json_int_t)value) : json_real(value);
    return json_object_set_new(object, field, number) == 0 ? 0 : pp_error_nomem(err);
}

/* As a session's: the settings' own limits are wider. */
static int set_budget(json_t *settings, const char *text, pp_error *err)
{
    static const char field[] = "overheadBudgetPercent";
    if (set_number(settings, field, "--budget", text, false, err) < 0)
        return -1;
    double percent = json_number_value(json_object_get(settings, field));
    return percent >= 0.01 && percent <= 50
               ? 0
               : pp_error_field(err, "--budget", "must be 0.01 to 50, not %s", text);
}

static int set_seconds(json_t *object, const char *field, const char *option, const char *text,
                       pp_error *err)
{
    int64_t ns;
    pp_error why = {0};
    if (pp_duration_parse(text, &ns, &why) < 0)
        return pp_error_field(err, option, "%s", why.message);
    return json_object_set_new(object, field, json_real((double)ns / SECOND)) == 0
               ? 0
               : pp_error_nomem(err);
}

static int set_milliseconds(json_t *object, const char *field, const char *option, const char *text,
                            pp_error *err)
{
    int64_t ns;
    pp_error why = {0};
    if (pp_duration_parse(text, &ns, &why) < 0)
        return pp_error_field(err, option, "%s", why.message);
    if (ns < 1000000)
        return pp_error_field(err, option, "must be at least 1ms, not %s", text);
    return json_object_set_new(object, field, json_integer(ns / 1000000)) == 0
               ? 0
               : pp_error_nomem(err);
}

/* The settings' own limits are the same; here they are told by the option's name. */
static int set_period(pp_run_options *out, const char *text, pp_error *err)
{
    pp_error why = {0};
    if (pp_duration_parse(text, &out->sampling_period_ns, &why) < 0 ||
        out->sampling_period_ns < 20000 || out->sampling_period_ns > 1000000)
        return pp_error_field(err, "--sampling-period", "must be 20us to 1ms, not %s", text);
    return 0;
}

int pp_kernels_option_parse(const char *text, int *ret, pp_error *err)
{
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : PP_TABLE_KERNELS;
    if (text && (end == text || *end || n < 1 || n > PP_TABLE_MOST_KERNELS))
        return pp_error_field(err, "--kernels", "must be 1 to %d, not %s", PP_TABLE_MOST_KERNELS,
                              text);
    *ret = (int)n;
    return 0;
}

static int refuse_metric(const char *text, pp_error *err)
{
    char names[300] = "";
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const size_t n = strlen(names);
        (void)snprintf(names + n, sizeof names - n, "%s%s", m ? ", " : "",
                       pp_metric_get((pp_metric)m)->spec_name);
    }
    return pp_error_field(err, "--metric", "must be one of %s, not %s", names, text);
}

static int add_metric(pp_run_options *out, const char *text, pp_error *err)
{
    pp_metric metric;
    if (pp_metric_from_name(text, &metric) < 0)
        return refuse_metric(text, err);
    out->solution.metrics |= 1U << metric;
    return 0;
}

static int take(collected *c, int key, char *text)
{
    json_t *s = c->settings;
    switch (key) {
    case 'd':
        return set_seconds(s, "durationSeconds", "--duration", text, c->err);
    case KEY_CAPTURE:
        return set_seconds(object_in(s, "stretch"), "seconds", "--capture", text, c->err);
    case KEY_TIMELINE:
        return set_number(object_in(s, "timeline"), "steps", "--timeline", text, true, c->err);
    case KEY_DEPTH:
        return set_number(object_in(s, "layers"), "depth", "--depth", text, true, c->err);
    case KEY_SKIP:
        return set_number(object_in(s, "steps"), "skip", "--steps-skip", text, true, c->err);
    case KEY_MAX:
        return set_number(object_in(s, "steps"), "max", "--steps-max", text, true, c->err);
    case KEY_BUDGET:
        return set_budget(s, text, c->err);
    case KEY_REPLAY_DURATION:
        return set_milliseconds(object_in(s, "isolation"), "dwellMs", "--replay-duration", text,
                                c->err);
    case KEY_PAUSE:
        return set_milliseconds(object_in(s, "isolation"), "maxPauseMs", "--replay-max-pause", text,
                                c->err);
    case KEY_MEMORY:
        return set_number(object_in(s, "isolation"), "memoryMiB", "--replay-memory", text, true,
                          c->err);
    case KEY_SAMPLING_PERIOD:
        return set_period(c->out, text, c->err);
    case KEY_KERNELS:
        return pp_kernels_option_parse(text, &c->out->kernels, c->err);
    case KEY_METRIC:
        return add_metric(c->out, text, c->err);
    case KEY_METHOD:
        return pp_method_parse(text, "--method", &c->out->solution.method, c->err);
    default:
        append(c, key, text);
        return 0;
    }
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    collected *c = state->input;
    switch (key) {
    case 'o':
        c->out->output = text;
        return 0;
    case 'q':
        c->out->quiet = true;
        return 0;
    case KEY_HOOK:
        c->out->hook = text;
        return 0;
    case KEY_KEEP_WINDOWS:
        c->out->keep_windows = true;
        return 0;
    case ARGP_KEY_ARGS:
        c->out->command = state->argv + state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "what shall be run? e.g. %s -- python3 train.py", state->name);
        return EINVAL;
    default:
        break;
    }
    if (key != 'd' && key < KEY_INCLUDE)
        return ARGP_ERR_UNKNOWN;
    return take(c, key, text) < 0 ? EINVAL : 0;
}

static json_t *defaults(void)
{
    return json_pack("{s:i, s:{s:s, s:s, s:s}, s:s, s:f, s:{s:f}}", "version", 1, "session", "uid",
                     "local", "namespace", "local", "name", "local", "endpoint", "",
                     "overheadBudgetPercent", 1.0, "stretch", "seconds", 10.0);
}

/* Layers are replayed where that was asked for, and never else. */
static void set_replay_duration(json_t *settings, bool replayed)
{
    json_t *isolation = object_in(settings, "isolation");
    if (!replayed || !json_object_get(isolation, "dwellMs"))
        (void)json_object_set_new(isolation, "dwellMs", json_integer(replayed ? DWELL_MS : 0));
}

const struct argp_option *pp_run_options_known(void)
{
    return known;
}

int pp_run_options_parse(int argc, char **argv, pp_run_options *ret, pp_error *err)
{
    static const struct argp argp = {
        known,
        parse,
        "-- COMMAND [ARGUMENT...]",
        "Runs a PyTorch training and says which layer, in which phase, takes how much time and how "
        "much of the GPU.",
        NULL,
        NULL,
        NULL};
    PP_CLEANUP_JSON json_t *settings = defaults();
    collected c = {.out = ret, .settings = settings, .err = err};
    *ret =
        (pp_run_options){.solution = pp_solve_defaults(), .sampling_period_ns = SAMPLING_PERIOD_NS};
    if (!settings)
        return pp_error_nomem(err);
    error_t rc = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    if (rc != 0)
        return err->code != PP_OK ? -1 : pp_error_set(err, PP_ERR_INVALID, "wrong arguments");
    if (ret->keep_windows && !ret->output)
        return pp_error_field(err, "--keep-windows", "needs --output, the folder to keep them in");
    const pp_method method = ret->solution.method;
    if (ret->keep_windows && method != PP_METHOD_AUTO && method != PP_METHOD_SAMPLING)
        return pp_error_field(err, "--keep-windows",
                              "is of methods Auto and Sampling: no other samples");
    if (method == PP_METHOD_AUTO || method == PP_METHOD_SAMPLING)
        (void)json_object_set_new(object_in(settings, "fine"), "periodNs",
                                  json_integer(ret->sampling_period_ns));
    set_replay_duration(settings, method == PP_METHOD_REPLAY);
    PP_CLEANUP_FREE char *text = json_dumps(settings, JSON_COMPACT);
    if (!text)
        return pp_error_nomem(err);
    const int parsed = pp_settings_parse(text, strlen(text), &ret->settings, err);
    if (parsed < 0 && strcmp(err->field, "phases") == 0)
        (void)snprintf(err->field, sizeof err->field, "--phase"); /* as it is called here */
    return parsed;
}

void pp_run_options_free(pp_run_options *options)
{
    pp_settings_free(&options->settings);
}
