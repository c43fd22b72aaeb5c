#include "cli/run/run.h"

#include "cli/recording/chip.h"
#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "cli/run/gpus.h"
#include "cli/run/run_copies.h"
#include "cli/run/run_kernels.h"
#include "cli/run/run_pattern.h"
#include "cli/run/run_ranks.h"
#include "cli/run/run_waits.h"
#include "cli/run/sampling.h"
#include "cli/tables/table.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "sidecar/agent/presence.h"
#include "sidecar/agent/trainers.h"
#include "sidecar/agent/window_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

enum {
    TICK_MS = 50,
    SCAN_TICKS = 4,
    PROGRESS_TICKS = 100,
    GPU_TICKS = 2, /* PP_NVML_WINDOW_NS */
    SIGNALS = 7,
};

static const int signal_numbers[SIGNALS] = {SIGCHLD, SIGINT,  SIGQUIT, SIGTERM,
                                            SIGHUP,  SIGUSR1, SIGUSR2};

typedef struct run {
    pp_run_options *options;
    uv_loop_t loop;
    uv_timer_t tick;
    pid_t child; /* the training; 0: it has ended */
    uv_signal_t signals[SIGNALS];
    char ring[PATH_MAX];
    char windows[PATH_MAX]; /* the folder of those that are kept */
    bool made_windows;
    pp_agent_pod pod;
    pp_trainers *trainers;
    pp_presence presence;
    pp_wire_hook hook; /* what the presence says */
    pp_activity_builder *activity;
    pp_gpus *gpus;
    pp_cli_sampling *sampling;
    pp_run_kernels *kernels;
    pp_run_waits *waits;
    pp_run_copies *copies;
    pp_recording *recording; /* NULL: no results are written */
    int64_t started;         /* ns since 1970 */
    unsigned ticks;
    int64_t steps;
    int64_t dropped;
    pp_wire_left_out left_out;
    int64_t cost_ns;
    int64_t paused_ns; /* the training was paused for replays */
    bool loaded;       /* some Python had loaded the hook */
    int status;        /* the training's */
    bool failed;       /* memory is out: what there is so far is told */
} run;

/* Read from here on: what they did before is of no use to anybody. */
static void on_gpus(void *user, const pp_strings *gpus)
{
    run *r = user;
    for (size_t i = 0; i < gpus->count; i++)
        pp_gpus_use(r->gpus, gpus->items[i]);
}

static void on_batch(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    run *r = user;
    pp_error err = {0};
    (void)events;
    (void)place;
    if (pp_activity_builder_add(r->activity, batch, &err) < 0)
        r->failed = true;
    /* What no solution can hold is of no use later either, which bounds the files. */
    const bool held = !pp_activity_builder_get(r->activity)->truncated;
    if (held && (pp_run_kernels_add(r->kernels, batch, &err) < 0 ||
                 pp_run_waits_add(r->waits, batch, &err) < 0 ||
                 pp_run_copies_add(r->copies, batch, &err) < 0))
        r->failed = true;
    if (r->recording && held)
        pp_recording_add(r->recording, batch);
    r->steps += batch->capture.dwell ? 0 : (int64_t)batch->step_count;
    r->paused_ns += batch->cost.paused;
    r->dropped += batch->dropped;
    r->left_out.steps += batch->left_out.steps;
    r->left_out.lost += batch->left_out.lost;
    r->left_out.late += batch->left_out.late;
    r->cost_ns += batch->cost.nanoseconds;
    on_gpus(r, &batch->process.gpus);
}

static void on_pm(void *user, const pp_sampling_report *report, const char *why)
{
    run *r = user;
    pp_error err = {0};
    if (pp_cli_sampling_take(r->sampling, report, why, &err) < 0)
        r->failed = true;
}

/* ---- the environment of the training ---- */

static int make_ring(run *r, pp_error *err)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)snprintf(r->ring, sizeof r->ring, "%s/precisionprobe-XXXXXX", places[i]);
        if (mkdtemp(r->ring))
            return pp_settings_control(&r->options->settings, r->ring,
                                       r->options->settings.skip > 0 ? "count" : "sample", err);
    }
    r->ring[0] = '\0';
    return pp_error_errno(err, "making a folder in /dev/shm");
}

/* Rings are removed with their processes; what is left is ours, the control file, or a leftover. */
static void remove_ring(const run *r)
{
    DIR *directory = r->ring[0] ? opendir(r->ring) : NULL;
    const struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        (void)closedir(directory);
    if (r->ring[0])
        (void)rmdir(r->ring);
}

static int set_environment(const run *r, pp_error *err)
{
    const char *path = getenv("PYTHONPATH");
    pp_buf joined;
    pp_buf_init(&joined, 1 << 20);
    int rc = pp_buf_printf(&joined, err, "%s%s%s", r->options->hook, path && *path ? ":" : "",
                           path ? path : "");
    if (rc == 0 &&
        (setenv("PYTHONPATH", joined.data, 1) < 0 || setenv("PRECISIONPROBE_RING", r->ring, 1) < 0))
        rc = pp_error_nomem(err);
    pp_buf_done(&joined);
    return rc;
}

/* ---- the loop ---- */

/* INT and QUIT reach the training by the terminal too, unless a process sent them. libuv does not
 * say who did. */
static volatile sig_atomic_t interrupted; /* pid of who is told; 0: nobody */

static bool is_the_terminals(int number)
{
    return number == SIGINT || number == SIGQUIT;
}

static void on_terminals_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0 && interrupted > 0) /* above: the kernel did, for the terminal */
        (void)kill((pid_t)interrupted, number);
}

static int watch_terminals_signal(int number)
{
    struct sigaction action = {.sa_sigaction = on_terminals_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL);
}

static void unwatch_terminals_signals(void)
{
    interrupted = 0;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now;
        if (is_the_terminals(signal_numbers[i]) && sigaction(signal_numbers[i], NULL, &now) == 0 &&
            now.sa_flags & SA_SIGINFO)
            (void)signal(signal_numbers[i], SIG_DFL);
    }
}

static void close_handles(run *r)
{
    unwatch_terminals_signals();
    uv_close((uv_handle_t *)&r->tick, NULL);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&r->signals[i], NULL);
}

static void on_end_of_child(run *r)
{
    int status;
    if (r->child == 0 || waitpid(r->child, &status, WNOHANG) != r->child)
        return;
    r->child = 0;
    r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    close_handles(r);
}

/* Its end is ours; others are passed on. */
static void on_signal(uv_signal_t *handle, int number)
{
    run *r = handle->data;
    if (number == SIGCHLD)
        on_end_of_child(r);
    else if (r->child > 0)
        (void)kill(r->child, number);
}

static bool is_watched(const run *r)
{
    return !r->options->quiet && isatty(STDERR_FILENO);
}

static void show_progress(const run *r)
{
    char sampled[64];
    const int64_t first = r->pod.first;
    if (!is_watched(r) || first == 0)
        return;
    int64_t ns = pp_time_monotonic() - first;
    const int64_t most = r->pod.policy.duration;
    if (most > 0 && ns > most)
        ns = most;
    pp_duration_format(ns / 1000000000 * 1000000000, sampled, sizeof sampled);
    (void)fprintf(stderr, "precisionprobe: %s, %" PRId64 " steps sampled\n", sampled, r->steps);
}

static void look_for_trainers(run *r)
{
    pp_trainers_scan(r->trainers);
    r->hook.torch = pp_trainers_seen(r->trainers);
    pp_presence_look(&r->presence, r->ring, pp_time_monotonic(), &r->hook);
    r->loaded = r->loaded || r->hook.loaded;
}

static void on_tick(uv_timer_t *timer)
{
    run *r = timer->data;
    pp_error err = {0};
    if (r->ticks % SCAN_TICKS == 0)
        look_for_trainers(r);
    const int64_t now = pp_time_monotonic();
    pp_trainers_poll(r->trainers, &r->pod, now, pp_time_offset());
    if (r->ticks % GPU_TICKS == 0 && pp_gpus_read(r->gpus, r->activity, &err) < 0)
        r->failed = true;
    if (++r->ticks % PROGRESS_TICKS == 0)
        show_progress(r);
}

/* Not by libuv, which gives a child every signal that nohup had it ignore. It starts with the mask
 * that we had. */
static int start_command(run *r, const sigset_t *mask)
{
    char **command = r->options->command;
    posix_spawnattr_t how;
    int rc = posix_spawnattr_init(&how);
    if (rc != 0)
        return rc;
    (void)posix_spawnattr_setsigmask(&how, mask);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
    rc = posix_spawnp(&r->child, command[0], NULL, &how, command, environ);
    (void)posix_spawnattr_destroy(&how);
    if (rc == 0)
        interrupted = r->child;
    else
        r->child = 0;
    return rc;
}

static bool is_folder(const char *path)
{
    const int why = errno;
    struct stat s;
    const bool is = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    errno = why;
    return is;
}

/* A command that did not start leaves earlier results as they are. */
static void begin_output(run *r)
{
    pp_error err = {0};
    if (!r->recording)
        return;
    pp_recording_begin(r->recording);
    if (is_folder(r->windows) && pp_window_folder_clear(r->windows, &err) < 0)
        (void)fprintf(stderr, "precisionprobe: windows of an earlier run are left: %s\n",
                      err.message);
}

/* A signal that comes while it is not known yet who is to be told waits until it is. */
static int spawn(run *r, pp_error *err)
{
    char **command = r->options->command;
    sigset_t held, before;
    (void)sigemptyset(&held);
    (void)sigaddset(&held, SIGINT);
    (void)sigaddset(&held, SIGQUIT);
    (void)pthread_sigmask(SIG_BLOCK, &held, &before);
    const int rc = start_command(r, &before);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        begin_output(r);
        pp_gpus_watch(r->gpus, r->child);
        return 0;
    }
    return pp_error_set(err, PP_ERR_NOT_FOUND, "%s: %s", command[0],
                        uv_strerror(uv_translate_sys_error(rc)));
}

/* One that is ignored, as under nohup, stays so. */
static int watch_signal(run *r, int i)
{
    struct sigaction now;
    bool ignored =
        sigaction(signal_numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN && i > 0;
    r->signals[i].data = r;
    (void)uv_signal_init(&r->loop, &r->signals[i]);
    if (ignored)
        return 0;
    return is_the_terminals(signal_numbers[i])
               ? watch_terminals_signal(signal_numbers[i])
               : uv_signal_start(&r->signals[i], on_signal, signal_numbers[i]);
}

static int start_handles(run *r, pp_error *err)
{
    r->tick.data = r;
    (void)uv_timer_init(&r->loop, &r->tick);
    bool ok = uv_timer_start(&r->tick, on_tick, 0, TICK_MS) == 0;
    for (int i = 0; i < SIGNALS; i++)
        ok = watch_signal(r, i) == 0 && ok;
    if (ok && spawn(r, err) == 0)
        return 0;
    close_handles(r);
    return ok ? -1 : pp_error_set(err, PP_ERR_INTERNAL, "libuv handles could not be made");
}

/* ---- results ---- */

/* What is told of the GPUs, one by one. */
typedef struct solutions {
    const pp_activity *activity;
    pp_ranks *ranks;
    pp_run_pattern pattern;
    json_t *gpus;
} solutions;

static int add_solution(void *user, const pp_estimates *solution, pp_error *err)
{
    solutions *s = user;
    if (json_array_append_new(s->gpus, pp_results_of_solution(solution)) < 0)
        return pp_error_nomem(err);
    return pp_run_pattern_add(&s->pattern, s->activity, solution, s->ranks, err);
}

static int solve_run(const run *r, json_t *gpus, json_t *results, pp_error *err)
{
    solutions s = {.activity = pp_activity_builder_get(r->activity), .gpus = gpus};
    if (is_watched(r))
        (void)fprintf(stderr, "precisionprobe: the program has ended; computing results\n");
    int rc = pp_ranks_compare(s.activity, &s.ranks, err);
    if (rc == 0)
        rc = pp_solve(s.activity, &r->options->solution, add_solution, &s, err);
    if (rc == 0)
        rc = pp_run_pattern_describe(&s.pattern, results, err);
    if (rc == 0)
        rc = pp_run_ranks_describe(s.ranks, results, err);
    pp_run_pattern_done(&s.pattern);
    pp_ranks_free(s.ranks);
    return rc;
}

static int describe_gpus(const run *r, json_t *gpus, pp_error *err)
{
    const pp_activity *activity = pp_activity_builder_get(r->activity);
    size_t i;
    json_t *gpu;
    bool used = false, unsampled = false;
    json_array_foreach(gpus, i, gpu)
    {
        const bool is_gpu = *pp_json_get_string(gpu, "gpu", NULL);
        if (pp_cli_sampling_describe(r->sampling, gpu, err) < 0 ||
            pp_gpus_describe(r->gpus, gpu, err) < 0 ||
            pp_run_kernels_describe(r->kernels, activity, gpu, err) < 0 ||
            pp_chip_describe(activity, gpu, err) < 0)
            return -1;
        used = used || is_gpu;
        unsampled = unsampled || (is_gpu && !json_object_get(gpu, "fine"));
    }
    const char *why = pp_cli_sampling_why(r->sampling);
    if (!*why && unsampled && r->options->settings.sampling_period > 0)
        why = "none of its captures was before the end";
    if (used && *why)
        (void)fprintf(stderr,
                      "precisionprobe: the GPU's performance monitors were not sampled: %s\n", why);
    return 0;
}

static json_t *command_of(const run *r)
{
    json_t *words = json_array();
    for (char **word = r->options->command; words && *word; word++)
        (void)json_array_append_new(words, json_string(*word));
    return words;
}

static json_t *metrics_of(const run *r)
{
    json_t *names = json_array();
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (r->options->solution.metrics & (1U << m))
            (void)json_array_append_new(names, json_string(pp_metric_get((pp_metric)m)->spec_name));
    }
    return names;
}

/* Why no step was sampled, as far as it can be seen from here; "": some was. */
static const char *why_unsampled(const run *r)
{
    if (r->steps > 0)
        return "";
    if (*pp_trainers_refusal(r->trainers))
        return pp_trainers_refusal(r->trainers);
    if (pp_trainers_trained(r->trainers))
        return "steps were counted, but the training ended before one was sampled from its begin "
               "to "
               "its end";
    if (pp_trainers_seen(r->trainers))
        return "no optimizer of torch.optim stepped in the processes that imported torch, and none "
               "called precisionprobe.step()";
    if (r->loaded)
        return "no Python that it started imported torch";
    return "it started no Python that loads the hook: none at all, or one with -I, -S or -E, "
           "without "
           "this environment, with another PYTHONPATH, or with a sitecustomize of its own before "
           "the "
           "hook's";
}

/* All but the GPUs' results. */
static json_t *facts_of(const run *r)
{
    char from[40];
    char to[40];
    pp_time_format(r->started, 3, from, sizeof from);
    pp_time_format(pp_time_now(), 3, to, sizeof to);
    return json_pack(
        "{s:i, s:s, s:s, s:o, s:s, s:o, s:i, s:I, s:I, s:{s:I, s:I, s:I}, s:I, s:I, s:s, s:s}",
        "version", 1, "started", from, "finished", to, "command", command_of(r), "method",
        pp_method_spec_name(r->options->solution.method), "metrics", metrics_of(r), "exitStatus",
        r->status, "sampledSteps", (json_int_t)r->steps, "dropped", (json_int_t)r->dropped,
        "leftOut", "steps", (json_int_t)r->left_out.steps, "lost", (json_int_t)r->left_out.lost,
        "late", (json_int_t)r->left_out.late, "costNs", (json_int_t)r->cost_ns, "pausedNs",
        (json_int_t)r->paused_ns, "note", pp_gpus_why(r->gpus), "unsampled", why_unsampled(r));
}

static void tell_none_chosen(const pp_settings *s, const json_t *results)
{
    if ((s->include.count || s->exclude.count || s->types.count) && pp_results_lack_layers(results))
        (void)fprintf(stderr, "precisionprobe: no layer was timed: --layers-include, "
                              "--layers-exclude, --layers-type and --phase leave none\n");
}

static void tell_none_replayed(const run *r, const json_t *results)
{
    const char *why = r->options->solution.method == PP_METHOD_REPLAY
                          ? pp_results_why_not_replayed(results)
                          : NULL;
    if (why)
        (void)fprintf(stderr, "precisionprobe: no layer has a value of its replays: %s\n", why);
}

static void tell_left_out(const run *r)
{
    const pp_wire_left_out *l = &r->left_out;
    static const char what_to_do[] =
        "Leave a processor to precisionprobe; where a stream of the GPU is far behind the others, "
        "longer captures (--capture) lose less";
    if (l->steps > 0 && l->lost == 0 && l->late == 0)
        (void)fprintf(stderr,
                      "precisionprobe: %" PRId64
                      " marked steps were left out: the training, or the "
                      "recording of its kernels, ended before all of these were known\n",
                      l->steps);
    if (l->lost > 0)
        (void)fprintf(stderr,
                      "precisionprobe: %" PRId64 " marked steps were left out: %" PRId64
                      " kernels' records were lost. %s\n",
                      l->steps, l->lost, what_to_do);
    if (l->late > 0)
        (void)fprintf(stderr,
                      "precisionprobe: busy times lack %" PRId64
                      " kernels, whose records came late; %" PRId64
                      " marked steps behind them were left out\n",
                      l->late, l->steps);
}

static int tell(run *r, pp_error *err)
{
    const pp_activity *activity = pp_activity_builder_get(r->activity);
    json_t *gpus = json_array();
    PP_CLEANUP_JSON json_t *results = facts_of(r);
    int recorded = pp_recording_end(PP_TAKE(r->recording), activity, err);
    if (json_object_set_new(results, "gpus", gpus) < 0)
        return pp_error_nomem(err);
    if (solve_run(r, gpus, results, err) < 0 || describe_gpus(r, gpus, err) < 0 ||
        pp_run_waits_describe(r->waits, results, err) < 0 ||
        pp_run_copies_describe(r->copies, results, err) < 0)
        return -1;
    pp_table_print(results, stderr,
                   &(pp_table_view){pp_table_columns(stderr), r->options->kernels});
    tell_none_chosen(&r->options->settings, results);
    tell_none_replayed(r, results);
    tell_left_out(r);
    if (*pp_gpus_why(r->gpus))
        (void)fprintf(stderr, "precisionprobe: GPU counters are missing: %s\n",
                      pp_gpus_why(r->gpus));
    if (!r->options->output || recorded < 0)
        return recorded;
    int rc = pp_results_write(results, r->options->output, err);
    if (rc == 0)
        (void)fprintf(stderr, "precisionprobe: results are in %s\n", r->options->output);
    return rc;
}

static int prepare_windows(run *r, pp_error *err)
{
    const int n = snprintf(r->windows, sizeof r->windows, "%s/windows", r->options->output);
    if (n < 0 || (size_t)n >= sizeof r->windows)
        return pp_error_field(err, "--output", "is too long a path");
    if (!r->options->keep_windows)
        return 0;
    r->pod.keep_windows = r->windows;
    r->made_windows = mkdir(r->windows, 0777) == 0;
    return r->made_windows || is_folder(r->windows) ? 0
                                                    : pp_error_errno(err, "making %s", r->windows);
}

static int prepare(run *r, pp_error *err)
{
    r->pod = (pp_agent_pod){.policy = pp_settings_policy(&r->options->settings),
                            .timeline = r->options->settings.timeline,
                            .allowed = true,
                            .session = pp_settings_number(&r->options->settings),
                            .emit = on_batch,
                            .use_gpus = on_gpus,
                            .sampling_period = r->options->settings.sampling_period,
                            .take_pm = on_pm,
                            .user = r};
    r->started = pp_time_now();
    if (r->options->output && pp_recording_open(r->options->output, &r->recording, err) < 0)
        return -1;
    if (r->options->output && prepare_windows(r, err) < 0)
        return -1;
    if (make_ring(r, err) < 0)
        return -1;
    r->trainers = pp_trainers_new(r->ring);
    r->activity = pp_activity_builder_new();
    r->gpus = pp_gpus_new();
    r->sampling = pp_cli_sampling_new();
    r->kernels = pp_run_kernels_new();
    r->waits = pp_run_waits_new();
    r->copies = pp_run_copies_new();
    return r->trainers && r->activity && r->gpus && r->sampling && r->kernels && r->waits &&
                   r->copies
               ? set_environment(r, err)
               : pp_error_nomem(err);
}

static void release(run *r)
{
    pp_error err = {0};
    if (r->recording && r->made_windows)
        (void)rmdir(r->windows);
    if (r->recording) /* the command did not start */
        (void)pp_recording_end(r->recording, NULL, &err);
    pp_trainers_free(r->trainers);
    pp_activity_builder_free(r->activity);
    pp_gpus_free(r->gpus);
    pp_cli_sampling_free(r->sampling);
    pp_run_kernels_free(r->kernels);
    pp_run_waits_free(r->waits);
    pp_run_copies_free(r->copies);
    remove_ring(r);
}

int pp_run(pp_run_options *options, pp_error *err)
{
    PP_CLEANUP_FREE run *r = calloc(1, sizeof *r);
    if (!r)
        return pp_error_nomem(err);
    r->options = options;
    if (uv_loop_init(&r->loop) != 0)
        return pp_error_set(err, PP_ERR_INTERNAL, "no libuv loop");
    int rc = prepare(r, err) < 0 ? -1 : start_handles(r, err);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    if (rc == 0) {
        pp_error why = {0};
        look_for_trainers(r);
        pp_trainers_finish(r->trainers, &r->pod, pp_time_monotonic(), pp_time_offset());
        if (tell(r, &why) < 0)
            (void)fprintf(stderr, "precisionprobe: %s%s%s\n", why.field, *why.field ? " " : "",
                          why.message);
        rc = r->status;
    }
    release(r);
    (void)uv_loop_close(&r->loop);
    return rc;
}
