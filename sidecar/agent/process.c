#include "sidecar/agent/process_internal.h"

#include "common/cleanup.h"
#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    KERNEL_ROUNDS = PP_RING_KERNELS / KERNELS_AT_ONCE + 1,
    ROUNDS = PP_RING_MARKS / MARKS_AT_ONCE + 1,
    RUNS_AT_ONCE = PP_WIRE_MAX_RUNS / 2,
};

#define BATCH_EVERY INT64_C(1000000000) /* ns */
#define GREET_EVERY INT64_C(1000000000)
#define CLOCKS_APART INT64_C(1000000) /* ns between two looks at the clocks, one at a time */
#define ENDING INT64_C(1500000000)    /* ns before the session's end */

/* ---- its GPUs ---- */

/* NULL: it has none of that number. */
static process_gpu *find_gpu(pp_process *p, int device)
{
    for (size_t i = 0; i < p->gpu_count; i++)
        if (p->gpus[i].device == device)
            return &p->gpus[i];
    return NULL;
}

static void free_gpu(process_gpu *g)
{
    pp_batcher_free(g->batcher);
    pp_monitor_free(g->monitor, false);
    pp_kernel_sums_free(g->sums);
    pp_copy_sums_free(g->copies);
}

/* NULL with an error. */
static process_gpu *add_gpu(pp_process *p, int device, pp_error *err)
{
    if (p->gpu_count == PP_RING_DEVICES) {
        (void)pp_error_set(err, PP_ERR_TOO_LARGE, "too many GPUs");
        return NULL;
    }
    process_gpu *g = &p->gpus[p->gpu_count];
    memset(g, 0, sizeof *g);
    g->device = device;
    g->id = -1;
    g->sums = pp_kernel_sums_new();
    g->copies = pp_copy_sums_new();
    g->batcher = pp_batcher_new();
    if (!g->sums || !g->copies || !g->batcher) {
        free_gpu(g);
        (void)pp_error_nomem(err);
        return NULL;
    }
    p->gpu_count++;
    return g;
}

/* Kernels are told of a capture that has begun: of a GPU that is here. */
static void on_kernel(void *user, const pp_kernels_placed *kernel)
{
    pp_process *p = user;
    process_gpu *g = find_gpu(p, kernel->gpu);
    if (!g)
        return;
    if (kernel->copy)
        pp_copy_sums_add(g->copies, kernel);
    else
        pp_kernel_sums_add(g->sums, kernel);
    if (g->monitor)
        pp_monitor_kernel(g->monitor, kernel);
}

/* As the ring has it, where the trainer could write too; -1: none. */
static int64_t number_from(uint32_t told)
{
    return told <= PP_WIRE_MAX_PROCESS + 1 ? (int64_t)told - 1 : -1;
}

/* The first GPU's, as an agent before this one has told of it; -1: it has not. */
static int device_told(const pp_process *p)
{
    for (int i = 0; i < PP_RING_DEVICES; i++)
        if (p->told.gpus[i] > 0 && p->told.gpus[i] == p->told.process)
            return i;
    return -1;
}

int pp_process_open(const char *path, pp_process **ret, pp_error *err)
{
    pp_process *p = calloc(1, sizeof *p);
    if (!p)
        return pp_error_nomem(err);
    p->path = strdup(path);
    p->pairing = pp_pairing_new();
    p->kernels = pp_kernels_new();
    p->graphs = pp_graphs_new();
    p->waits = pp_wait_sums_new();
    p->memory = pp_memory_sums_new();
    process_gpu *first = add_gpu(p, -1, err);
    if (!p->path || !p->pairing || !p->kernels || !p->graphs || !p->waits || !p->memory || !first)
        (void)pp_error_nomem(err);
    else if (pp_reader_open(path, &p->reader, err) == 0) {
        p->told = *pp_reader_told(p->reader);
        pp_kernels_lost_before(p->kernels, p->told.kernels_lost);
        first->id = number_from(p->told.process);
        first->device = device_told(p);
        p->session = pp_reader_header(p->reader)->session;
        p->paused_before = pp_reader_header(p->reader)->paused;
        pp_kernels_watch(p->kernels, on_kernel, p);
        pp_kernels_use_graphs(p->kernels, p->graphs);
        *ret = p;
        return 0;
    }
    pp_process_free(p);
    return -1;
}

void pp_process_free(pp_process *p)
{
    if (!p)
        return;
    pp_reader_free(p->reader);
    for (size_t i = 0; i < p->gpu_count; i++)
        free_gpu(&p->gpus[i]);
    pp_kernels_free(p->kernels);
    pp_graphs_free(p->graphs);
    pp_wait_sums_free(p->waits);
    pp_memory_sums_free(p->memory);
    pp_pairing_free(p->pairing);
    free(p->path);
    free(p);
}

const char *pp_process_path(const pp_process *p)
{
    return p->path;
}

void pp_process_keep_number(const pp_process *p, pp_agent_pod *pod)
{
    if (pod->processes <= p->gpus[0].id)
        pod->processes = p->gpus[0].id + 1;
    for (int i = 0; i < PP_RING_DEVICES; i++)
        if (pod->processes <= number_from(p->told.gpus[i]))
            pod->processes = number_from(p->told.gpus[i]) + 1;
}

int64_t pp_process_steps(const pp_process *p)
{
    return pp_reader_header(p->reader)->steps;
}

const char *pp_process_refusal(const pp_process *p)
{
    return p->refusal;
}

uint64_t pp_process_broken(const pp_process *p)
{
    return pp_pairing_broken(p->pairing);
}

static bool any_open(const pp_process *p)
{
    bool any = false;
    for (size_t i = 0; i < p->gpu_count; i++)
        any = any || p->gpus[i].open;
    return any;
}

/* Whether steps are gathered. */
static bool any_steps(const pp_process *p)
{
    bool any = false;
    for (size_t i = 0; i < p->gpu_count; i++)
        any = any || pp_batcher_steps(p->gpus[i].batcher) > 0;
    return any;
}

/* Ends a capture; one without a step is not worth a word. Marks before `next` are done with. */
static void end_capture(pp_process *p, process_gpu *g, pp_agent_pod *pod, uint64_t next)
{
    const bool told = g->open && g->steps > 0;
    p->to = next;
    if (told)
        process_cut_gpu(p, g, pod, true);
    if (pp_kernel_sums_over(g->sums))
        pp_warn(p->path, "a capture's kernels are not told: there are too many names and layers");
    pp_kernel_sums_clear(g->sums);
    g->open = false;
    g->steps = 0;
    p->from = next;
    if (told && !process_is_first(p, g))
        process_cut_rest(p, pod);
}

/* Steps whose times are the kernels' come when the hook may be about other things. */
static void note_clock(pp_process *p, bool kernels)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    (void)snprintf(p->clock, sizeof p->clock, "%s",
                   kernels ? "kernels" : process_clock_name(h->clock));
    (void)snprintf(p->why, sizeof p->why, "%s", kernels ? "" : h->kernels);
}

/* Names of kernels that have come. */
static int take_names(pp_process *p, process_gpu *g, pp_error *err)
{
    long n;
    do {
        n = pp_reader_names(p->reader, pp_kernel_sums_named(g->sums), p->name_buffer, NAMES_AT_ONCE,
                            err);
        if (n < 0 || pp_kernel_sums_name(g->sums, p->name_buffer, (size_t)n, err) < 0)
            return -1;
    } while (n > 0);
    return 0;
}

/* Compiled graphs that have come; and names, by which their kernels are known. */
static int take_graphs(pp_process *p, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    long n = h->graph_count > 0;
    while (n > 0) {
        n = pp_reader_names(p->reader, pp_graphs_named(p->graphs), p->name_buffer, NAMES_AT_ONCE,
                            err);
        if (n < 0 || pp_graphs_name(p->graphs, p->name_buffer, (size_t)n, err) < 0)
            return -1;
    }
    while (pp_graphs_count(p->graphs) < h->graph_count) {
        pp_ring_graph graph;
        if (pp_reader_graph(p->reader, pp_graphs_count(p->graphs), &graph, err) < 0)
            return -1;
        PP_CLEANUP_FREE pp_ring_launch *launches = calloc(graph.count + 1U, sizeof *launches);
        if (!launches)
            return pp_error_nomem(err);
        if (pp_reader_launches(p->reader, &graph, launches, err) < 0 ||
            pp_graphs_add(p->graphs, &graph, launches, PP_RING_LAYERS, err) < 0)
            return -1;
    }
    return 0;
}

/* Of a GPU that runs something for the first time. */
static void tell_gpu(pp_process *p, const process_gpu *g, pp_agent_pod *pod)
{
    pp_strings gpus = {0};
    pp_error err = {0};
    if (pod->use_gpus && process_name_gpu(p, g, &gpus, &err) == 0)
        pod->use_gpus(pod->user, &gpus);
    pp_strings_free(&gpus);
}

/* The GPU whose times a step has: by CUDA's number where they are kernels', else the first one.
 * NULL with an error. */
static process_gpu *gpu_of(pp_process *p, pp_agent_pod *pod, const pp_step *step, pp_error *err)
{
    process_gpu *g = step->kernels ? find_gpu(p, step->gpu) : &p->gpus[0];
    if (g)
        return g;
    if (p->gpus[0].device < 0) {
        g = &p->gpus[0];
        g->device = step->gpu;
    } else {
        g = add_gpu(p, step->gpu, err);
        if (g && take_names(p, g, err) < 0)
            return NULL;
    }
    if (g)
        tell_gpu(p, g, pod);
    return g;
}

/* One that an agent before this one has told of keeps its number. */
static void number_gpu(pp_process *p, process_gpu *g, pp_agent_pod *pod)
{
    uint32_t *told = g->device >= 0 ? &p->told.gpus[g->device] : NULL;
    if (g->id < 0 && told)
        g->id = number_from(*told);
    if (g->id < 0)
        g->id = pod->processes++ % (PP_WIRE_MAX_PROCESS + 1);
    if (told)
        *told = (uint32_t)g->id + 1;
    if (process_is_first(p, g))
        p->told.process = (uint32_t)g->id + 1;
}

static void on_start(pp_process *p, process_gpu *g, pp_agent_pod *pod, const pp_step *step)
{
    end_capture(p, g, pod, step->at);
    number_gpu(p, g, pod);
    p->refusal[0] = '\0'; /* it is profiled */
    if (pod->first == 0)
        pod->first = step->end;
    pp_batcher_timeline(g->batcher, pod->timeline);
    pp_batcher_start(g->batcher, pod->captures++, step->end, p->offset);
    pp_batcher_dwell(g->batcher, step->dwell, step->background);
    note_clock(p, step->kernels);
    g->open = true;
    /* What an agent before this one left has waited: it is told before this one is killed, too. */
    p->cut_at = step->end < p->now ? step->end : p->now;
}

static int on_step(pp_process *p, process_gpu *g, pp_agent_pod *pod, const pp_step *step,
                   pp_error *err)
{
    if (step->first)
        p->over = pod->policy.max > 0 && p->sampled >= pod->policy.max && !step->dwell;
    const bool counts = !p->over && !step->dwell;
    if (!p->over && !pp_batcher_fits(g->batcher, step->count))
        process_cut(p, pod);
    if (step->kernels) {
        pp_kernel_sums_step(g->sums, counts);
        pp_copy_sums_step(g->copies, counts);
    }
    if (counts && step->first)
        pp_wait_sums_add(p->waits, step);
    if (p->over)
        return 0; /* came between the last wanted step and the hook's hearing of it */
    p->sampled += step->first && step->dwell == 0;
    g->steps++;
    p->to = step->at; /* a capture that begins with this mark goes on where the batch ends */
    return pp_batcher_add(g->batcher, step, err);
}

static int on_event(pp_process *p, pp_agent_pod *pod, int event, const pp_step *step, pp_error *err)
{
    process_gpu *g = event > PP_PAIRING_NONE ? gpu_of(p, pod, step, err) : NULL;
    if (!g)
        return event > PP_PAIRING_NONE ? -1 : event;
    switch (event) {
    case PP_PAIRING_START:
        on_start(p, g, pod, step);
        return 0;
    case PP_PAIRING_STEP:
        return on_step(p, g, pod, step, err);
    default:
        if (g->monitor)
            pp_monitor_end(g->monitor);
        end_capture(p, g, pod, step->at + 1);
        return 0;
    }
}

/* No mark so far is of a capture that is still to be told. */
static bool is_idle(const pp_process *p)
{
    return !pp_pairing_running(p->pairing) && !pp_kernels_waiting(p->kernels) && !any_open(p);
}

/* Where nobody may be told yet, the oldest go. */
static void add_run(pp_process *p, pp_wire_run run, uint64_t at)
{
    const pp_wire_run *before = p->run_count ? &p->runs[p->run_count - 1] : NULL;
    const int64_t over = before ? before->start + before->duration - run.start : 0;
    if (over > 0 && over < CLOCKS_APART)
        run.start += over; /* it began where that one ended, by another look at both clocks */
    if (p->run_count == PP_WIRE_MAX_RUNS) {
        p->run_count--;
        memmove(p->runs, p->runs + 1, p->run_count * sizeof *p->runs);
        memmove(p->run_at, p->run_at + 1, p->run_count * sizeof *p->run_at);
    }
    p->runs[p->run_count] = run;
    p->run_at[p->run_count++] = at;
}

/* Nothing before the year 2000, nothing to come. */
static int take_run(pp_process *p, pp_agent_pod *pod, const pp_mark *mark, pp_error *err)
{
    if (p->stale || mark->layer == 0 || mark->value < 0 || mark->value > PP_WIRE_MAX_DURATION ||
        mark->time < mark->value || mark->time > p->now)
        return 0;
    const pp_wire_run run = {.start = mark->time - mark->value + p->offset,
                             .duration = mark->value,
                             .steps = mark->layer};
    if (run.start < PP_WIRE_TIME_MIN)
        return 0;
    add_run(p, run, p->at);
    if (p->run_count < RUNS_AT_ONCE || !is_idle(p))
        return 0;
    p->from = p->at + 1;
    return process_emit_runs(p, pod, err);
}

/* Hands on the steps whose kernels are all here. */
static int pump(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    for (;;) {
        const pp_step *step = NULL;
        int event = pp_kernels_next(p->kernels, &step, err);
        if (event == PP_PAIRING_NONE)
            return 0;
        if (on_event(p, pod, event, step, err) < 0)
            return -1;
    }
}

static int take(pp_process *p, pp_agent_pod *pod, const pp_mark *mark, pp_error *err)
{
    if (mark->kind == PP_MARK_COUNTED)
        return take_run(p, pod, mark, err);
    int event = pp_pairing_feed(p->pairing, mark, err);
    if (event == PP_PAIRING_START && p->stale) {
        (void)pp_pairing_end(p->pairing);
        return 0;
    }
    if (event <= PP_PAIRING_NONE)
        return event;
    p->told_missing = p->told_missing && event != PP_PAIRING_START;
    pp_step step = *pp_pairing_step(p->pairing);
    step.at = p->at;
    step.first = true;
    if (step.memory && event == PP_PAIRING_STEP)
        return pp_memory_sums_add(p->memory, &step, err);
    if (step.memory && event == PP_PAIRING_START)
        return 0;
    if (event == PP_PAIRING_STEP && !step.dwell)
        p->step += (step.end - step.start - p->step) / (p->step ? 8 : 1);
    if (step.kernels)
        return pp_kernels_queue(p->kernels, (pp_pairing_event)event, &step, err);
    pp_kernels_finish(p->kernels); /* a capture of another clock: what waits is from before */
    if (pump(p, pod, err) < 0)
        return -1;
    return on_event(p, pod, event, &step, err);
}

/*
 * Marks leave the ring when they are in a batch, or will be in none, so that an agent that is
 * killed leaves them to the next. Only a step of more marks than half the ring holds goes before,
 * and would be lost with the agent.
 */
static int release(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    uint64_t taken = pp_reader_taken(p->reader);
    if (is_idle(p))
        p->from = taken;
    if (taken - p->from > PROCESS_HELD_MAX && any_steps(p))
        process_cut(p, pod);
    if (taken - p->from > PROCESS_HELD_MAX)
        p->from = taken;
    return pp_reader_release(p->reader, process_tail(p), &p->told, err);
}

static int drain_kernels(pp_process *p, pp_error *err)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        long n = pp_reader_take_kernels(p->reader, p->kernel_buffer, KERNELS_AT_ONCE, err);
        if (n <= 0)
            return (int)n;
        for (size_t i = 0; i < p->gpu_count; i++)
            if (take_names(p, &p->gpus[i], err) < 0)
                return -1;
        for (long i = 0; i < n; i++)
            if (pp_kernels_add(p->kernels, &p->kernel_buffer[i], err) < 0)
                return -1;
    }
    return 0;
}

/* Of losses once a capture, at the first of them; of what its end leaves out each time. */
static void warn_of_missing(pp_process *p)
{
    const pp_kernels_missing now = pp_kernels_what_is_missing(p->kernels), before = p->noticed;
    const bool lost = now.lost > before.lost, late = now.late > before.late;
    p->noticed = now;
    if (!lost && !late && now.steps > before.steps)
        pp_warn(p->path,
                "%" PRIu64 " marked steps are left out: the training, or the recording of its "
                "kernels, ended before all of these were known",
                now.steps - before.steps);
    if (p->told_missing || (!lost && !late))
        return;
    p->told_missing = true;
    if (lost)
        pp_warn(p->path,
                "records of %" PRIu64 " kernels were lost: %" PRIu64 " marked steps are left out",
                now.lost - before.lost, now.steps - before.steps);
    if (late)
        pp_warn(p->path, "kernels came after their step was told: its busy times lack them");
}

/* Losses of kernels are heeded before a step that they may fall into is handed on. */
static int join(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    if (drain_kernels(p, err) < 0 || take_graphs(p, err) < 0)
        return -1;
    pp_kernels_lost(p->kernels, pp_reader_header(p->reader)->kernels_lost);
    warn_of_missing(p);
    return pump(p, pod, err);
}

static int drain(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (pp_reader_refresh(p->reader, err) < 0)
            return -1;
        p->at = pp_reader_taken(p->reader);
        long n = pp_reader_take(p->reader, p->buffer, MARKS_AT_ONCE, err);
        if (n < 0)
            return -1;
        for (long i = 0; i < n; i++, p->at++)
            if (take(p, pod, &p->buffer[i], err) < 0)
                return -1;
        if (join(p, pod, err) < 0 || release(p, pod, err) < 0)
            return -1;
        if (n == 0)
            return 0;
    }
    return 0;
}

/* ---- the mode ---- */

/* The header is the program's to write. */
static int64_t paused_since(const pp_process *p, const pp_ring_header *h)
{
    int64_t since = 0;
    return __builtin_sub_overflow(h->paused, p->paused_before, &since) ? 0 : since;
}

static int set_mode(pp_process *p, pp_agent_pod *pod, int64_t now, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    pp_schedule_input input = {.now = now,
                               .allowed = pod->allowed && !pod->leaving && !p->stale,
                               .running = pp_pairing_running(p->pairing),
                               .isolating = h->isolating != 0,
                               .paused = paused_since(p, h),
                               .events = strcmp(h->clock, "cuda") == 0,
                               .cost = h->cost,
                               .steps = h->steps,
                               .step = p->step,
                               .sampled = p->sampled,
                               .first = pod->first};
    pp_ring_mode mode = pp_schedule_next(&p->schedule, &pod->policy, &input);
    if (process_sample_gpus(p, pod, &mode, err) < 0)
        return -1;
    return pp_reader_set_mode(p->reader, mode, err);
}

/*
 * Another session: everything is counted anew. A capture that the hook has begun, or begins now,
 * knows the layers of the session before; so no capture is taken until the hook has been seen idle.
 */
static int take_session(pp_process *p, const pp_agent_pod *pod, pp_error *err)
{
    if (p->session == pod->session)
        return 0;
    p->session = pod->session;
    process_end_sampling(p);
    p->stale = true;
    p->schedule = (pp_schedule){0};
    p->sampled = 0;
    return pp_reader_set_session(p->reader, p->session, err);
}

/* A session may be on other GPUs than the one before. */
static void forget_gpus(pp_process *p)
{
    if (any_open(p))
        return;
    for (size_t i = 1; i < p->gpu_count; i++)
        free_gpu(&p->gpus[i]);
    p->gpu_count = 1;
    p->gpus[0].device = -1;
    memset(p->told.gpus, 0, sizeof p->told.gpus);
}

/* The hook is idle: what it lost and cost until now is not the new session's. */
static void begin_session(pp_process *p)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    p->stale = false;
    forget_gpus(p);
    p->run_count = 0;
    for (size_t i = 0; i < p->gpu_count; i++) {
        pp_kernel_sums_clear(p->gpus[i].sums);
        pp_copy_sums_forget(p->gpus[i].copies);
    }
    pp_wait_sums_forget(p->waits);
    pp_memory_sums_clear(p->memory);
    p->told_memory = false;
    p->told.lost = h->lost;
    p->told.marks = h->marks;
    p->told.cost = h->cost;
    p->told.paused = p->paused_before = h->paused;
    p->missing = pp_kernels_what_is_missing(p->kernels);
    p->told.kernels_lost = pp_kernels_heeded(p->kernels);
}

void pp_process_finish(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    uint64_t taken = pp_reader_taken(p->reader);
    (void)pp_pairing_end(p->pairing);
    pp_kernels_finish(p->kernels);
    if (pump(p, pod, &err) < 0)
        pp_warn(p->path, "steps are lost: %s", err.message);
    warn_of_missing(p);
    for (size_t i = 0; i < p->gpu_count; i++)
        end_capture(p, &p->gpus[i], pod, taken);
    process_emit_missing(p, pod);
    if (process_emit_runs(p, pod, &err) < 0)
        pp_warn(p->path, "counted steps are not told: %s", err.message);
    for (size_t i = 0; i < p->gpu_count; i++)
        if (p->gpus[i].monitor) {
            pp_monitor_finish(p->gpus[i].monitor);
            process_report_pm(p, &p->gpus[i], pod);
        }
    (void)pp_reader_release(p->reader, taken, &p->told, &err);
}

/* While nothing is sampled yet the hook knows only what the environment says. */
static void tell_gpus(pp_process *p, pp_agent_pod *pod)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    pp_strings gpus = {0};
    pp_error err = {0};
    if (p->told_gpus || h->state != PP_RING_SAMPLE || !pod->use_gpus)
        return;
    p->told_gpus = true;
    if (process_fill_gpus(h->gpus, &gpus, &err) == 0)
        pod->use_gpus(pod->user, &gpus);
    pp_strings_free(&gpus);
}

/* It stands until the process is profiled, or says another one. */
static void note_refusal(pp_process *p, const char *text)
{
    PP_CLEANUP_FREE char *why = process_clean_text(text, sizeof p->refusal);
    if (!why || strcmp(why, p->refusal) == 0)
        return;
    (void)snprintf(p->refusal, sizeof p->refusal, "%s", why);
    pp_warn(p->path, "this process is not profiled: %s", p->refusal);
}

/* Once each. */
static void listen_to_graphs(pp_process *p)
{
    const pp_graphs_told told = pp_graphs_so_far(p->graphs);
    if (told.unknown > 0 && !p->told_unknown)
        pp_warn(p->path, "compiled code of which nothing was recorded is told as one layer: it was "
                         "compiled before, came from a cache, or is of a kind that is not told");
    if (told.unfit > 0 && !p->told_unfit)
        pp_warn(p->path, "compiled code whose kernels are not those that were recorded is told as "
                         "one layer");
    p->told_unknown = p->told_unknown || told.unknown > 0;
    p->told_unfit = p->told_unfit || told.unfit > 0;
}

/* What the hook has to say besides marks. */
static void listen(pp_process *p, pp_agent_pod *pod)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    tell_gpus(p, pod);
    if (h->refusal[0])
        note_refusal(p, h->refusal);
    if (h->copies[0] && !p->told_copies) {
        p->told_copies = true;
        PP_CLEANUP_FREE char *why = process_clean_text(h->copies, sizeof h->copies);
        pp_info(p->path, "copies and fills are not recorded: %s", why ? why : "?"); /* by default */
    }
    if (h->memory[0] && !p->told_memory) {
        p->told_memory = true;
        PP_CLEANUP_FREE char *why = process_clean_text(h->memory, sizeof h->memory);
        pp_warn(p->path, "what layers allocate is not known: %s", why ? why : "?");
    }
    listen_to_graphs(p);
    if (h->failures > p->failures)
        pp_warn(p->path, "the hook gave a capture up for an error of its own, %u so far",
                h->failures);
    p->failures = h->failures;
}

/* A sign for the hook that the agent is there. */
static int greet(pp_process *p, int64_t now, pp_error *err)
{
    if (now - p->greeted < GREET_EVERY)
        return 0;
    p->greeted = now;
    return pp_reader_beat(p->reader, err);
}

/* Behind the last capture there is no batch for counted steps, and once the operator has solved the
 * session it takes none. */
static bool is_ending(const pp_process *p, const pp_agent_pod *pod)
{
    return !any_open(p) && pod->first > 0 && pod->policy.duration > 0 &&
           p->now - pod->first > pod->policy.duration - ENDING;
}

int pp_process_poll(pp_process *p, pp_agent_pod *pod, int64_t now, int64_t offset, pp_error *err)
{
    if (p->now == 0 && pp_reader_kernels_taken(p->reader) > 0)
        pp_kernels_since(p->kernels, now); /* an agent before this one took what was before */
    p->now = now;
    p->offset = offset;
    /* Asked before reading: what a process wrote before it went is there now. */
    bool gone = pp_reader_gone(p->reader);
    if (take_session(p, pod, err) < 0 || drain(p, pod, err) < 0) {
        pp_process_finish(p, pod);
        return -1;
    }
    listen(p, pod);
    if (p->stale && pp_reader_header(p->reader)->state == PP_RING_IDLE)
        begin_session(p);
    if (gone) {
        pp_process_finish(p, pod);
        return 1;
    }
    if (any_steps(p) && now - p->cut_at >= BATCH_EVERY) {
        process_cut(p, pod);
        p->cut_at = now;
        if (release(p, pod, err) < 0)
            return -1;
    }
    if (is_ending(p, pod)) {
        process_emit_missing(p, pod);
        /* Else their marks would stay, before those of a capture that waits for its kernels. */
        if (is_idle(p) && (process_emit_runs(p, pod, err) < 0 || release(p, pod, err) < 0))
            return -1;
    }
    return greet(p, now, err) < 0 ? -1 : set_mode(p, pod, now, err);
}
