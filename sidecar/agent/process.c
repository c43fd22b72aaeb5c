#include "sidecar/agent/process.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "sidecar/agent/batch.h"
#include "sidecar/agent/copy_sums.h"
#include "sidecar/agent/estimates.h"
#include "sidecar/agent/kernel_sums.h"
#include "sidecar/agent/kernels.h"
#include "sidecar/agent/pairing.h"
#include "sidecar/agent/reader.h"
#include "sidecar/agent/text.h"
#include "sidecar/agent/wait_sums.h"

#include <stdio.h>
#include <string.h>

enum {
    MARKS_AT_ONCE = 4096,
    KERNELS_AT_ONCE = 4096,
    KERNEL_ROUNDS = PP_RING_KERNELS / KERNELS_AT_ONCE + 1,
    ROUNDS = PP_RING_MARKS / MARKS_AT_ONCE + 1,
    HELD_MAX = PP_RING_MARKS / 2, /* marks that stay in the ring until their batch is made */
    RUNS_AT_ONCE = PP_WIRE_MAX_RUNS / 2,
    NAMES_AT_ONCE = 16 << 10, /* bytes */
    FIRST_STEPS = 4, /* are taken before samples are waited for: the training may be over soon */
};

#define BATCH_EVERY INT64_C(1000000000) /* ns */
#define GREET_EVERY INT64_C(1000000000)
#define CLOCKS_APART INT64_C(1000000) /* ns between two looks at the clocks, one at a time */
#define ENDING INT64_C(1500000000)    /* ns before the session's end */

struct pp_process {
    char *path;
    pp_reader *reader;
    pp_pairing *pairing;
    pp_kernels *kernels;
    pp_kernel_sums *sums; /* of steps that the batcher has had, by name */
    pp_copy_sums *copies; /* of the same */
    pp_wait_sums *waits;  /* of the same */
    int64_t untold;       /* waits that are in none of these, as told already */
    pp_batcher *batcher;
    pp_monitor *monitor; /* NULL: PM sampling is not wanted */
    bool told_why;       /* why there is no more of it */
    pp_schedule schedule;
    uint32_t session; /* that the hook has been told */
    bool stale;       /* it may still mark for the session before: to be brought to rest */
    int64_t id;       /* -1: nothing was sampled yet */
    int64_t sampled;
    int64_t steps;          /* of the running capture */
    int64_t step;           /* ns that a marked step takes of late; 0: not known */
    bool open;              /* the batcher has a capture */
    char clock[16];         /* of that capture: the header may tell of the next one already */
    char why[PP_RING_TYPE]; /* no busy times are known of it */
    int64_t now;            /* of the last poll, monotonic ns */
    int64_t offset;         /* from there to ns since 1970 */
    int64_t cut_at;         /* when the last batch was cut, or its capture began, monotonic ns */
    uint64_t at;            /* the position in the ring of the mark that is looked at */
    uint64_t from;          /* that of the first mark of the batch that is gathered */
    uint64_t to; /* that of the mark with which the batch after it begins, were it cut now */
    pp_ring_told told;
    int64_t greeted;  /* when the hook was last told that the agent is there, monotonic ns */
    bool told_gpus;   /* which GPUs it uses */
    bool told_copies; /* why copies are not recorded */
    bool refused;     /* that the hook stands aside is told already */
    char refusal[PP_RING_TYPE];         /* why it did; "": it did not */
    uint64_t late;                      /* kernels that came late, as told already */
    uint32_t failures;                  /* of the hook's that are told already */
    pp_wire_run runs[PP_WIRE_MAX_RUNS]; /* of counted steps, not told yet */
    size_t run_count;
    int64_t
        paused_before; /* what the hook had of pauses when it was seen first, or the session came */
    uint64_t steps_before; /* the running capture, as the hook counts them */
    pp_mark buffer[MARKS_AT_ONCE];
    pp_kernel kernel_buffer[KERNELS_AT_ONCE];
    char name_buffer[NAMES_AT_ONCE];
};

static void on_kernel(void *user, const pp_kernels_placed *kernel)
{
    pp_process *p = user;
    if (kernel->copy)
        pp_copy_sums_add(p->copies, kernel);
    else
        pp_kernel_sums_add(p->sums, kernel);
    if (p->monitor)
        pp_monitor_kernel(p->monitor, kernel);
}

int pp_process_open(const char *path, pp_process **ret, pp_error *err)
{
    pp_process *p = calloc(1, sizeof *p);
    if (!p)
        return pp_error_nomem(err);
    p->id = -1;
    p->path = strdup(path);
    p->pairing = pp_pairing_new();
    p->kernels = pp_kernels_new();
    p->sums = pp_kernel_sums_new();
    p->copies = pp_copy_sums_new();
    p->waits = pp_wait_sums_new();
    p->batcher = pp_batcher_new();
    if (!p->path || !p->pairing || !p->kernels || !p->sums || !p->copies || !p->waits ||
        !p->batcher)
        (void)pp_error_nomem(err);
    else if (pp_reader_open(path, &p->reader, err) == 0) {
        p->told = *pp_reader_told(p->reader);
        p->id = p->told.process <= PP_WIRE_MAX_PROCESS + 1 ? (int64_t)p->told.process - 1 : -1;
        p->session = pp_reader_header(p->reader)->session;
        p->paused_before = pp_reader_header(p->reader)->paused;
        pp_kernels_watch(p->kernels, on_kernel, p);
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
    pp_batcher_free(p->batcher);
    pp_monitor_free(p->monitor, false);
    pp_kernels_free(p->kernels);
    pp_kernel_sums_free(p->sums);
    pp_copy_sums_free(p->copies);
    pp_wait_sums_free(p->waits);
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
    if (pod->processes <= p->id)
        pod->processes = p->id + 1;
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

/* ---- what the user's process says of itself, made fit for the wire ---- */

/* A copy of at most `max` bytes that is UTF-8, without control characters, not empty. NULL where
 * memory is out. */
static char *clean_text(const char *text, size_t max)
{
    char *copy = strdup(*text ? text : "?");
    if (!copy)
        return NULL;
    if (strlen(copy) > max)
        copy[max] = '\0';
    pp_text_clean(copy);
    return copy;
}

static int fill_gpus(const char *text, pp_strings *gpus, pp_error *err)
{
    PP_CLEANUP_FREE char *copy = strdup(text);
    char *save = NULL;
    if (!copy)
        return pp_error_nomem(err);
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        if (!pp_wire_is_id(one, PP_WIRE_MAX_GPU) || gpus->count >= PP_WIRE_MAX_GPUS)
            continue;
        if (pp_strings_add_once(gpus, one, err) < 0)
            return -1;
    }
    return 0;
}

static const char *clock_name(const char *text)
{
    static const char *const names[] = {"kernels", "cuda"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return names[i];
    return "host";
}

static pp_chip chip_of(const pp_ring_header *h)
{
    const pp_chip chip = {h->capability, h->multiprocessors, h->sm_khz, h->memory_khz,
                          h->memory_bits};
    return pp_wire_chip_is_known(&chip) ? chip : (pp_chip){0};
}

/* What is not known is empty. */
static int describe_model(const pp_ring_header *h, pp_wire_process *to, pp_error *err)
{
    to->model = clean_text(h->model, PP_WIRE_MAX_TEXT);
    to->digest = strdup(pp_wire_is_digest(h->model_digest) ? h->model_digest : "");
    to->batch = h->batch[0] ? clean_text(h->batch, PP_WIRE_MAX_BATCH) : strdup("");
    return to->model && to->digest && to->batch ? 0 : pp_error_nomem(err);
}

static int describe(const pp_process *p, pp_wire_process *to, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    to->id = p->id;
    to->world_size = h->world_size >= 1 && h->world_size <= PP_WIRE_MAX_PROCESS ? h->world_size : 1;
    to->rank = h->rank >= 0 && h->rank < to->world_size ? h->rank : 0;
    to->hostname = clean_text(h->hostname, PP_WIRE_MAX_TEXT);
    to->python = clean_text(h->python, PP_WIRE_MAX_VERSION);
    to->torch = clean_text(h->torch, PP_WIRE_MAX_VERSION);
    to->clock = strdup(*p->clock ? p->clock : clock_name(h->clock));
    to->kernels = p->why[0] ? clean_text(p->why, PP_WIRE_MAX_VERSION) : strdup("");
    to->isolated = h->isolated[0] ? clean_text(h->isolated, sizeof h->isolated) : strdup("");
    if (!to->kernels || !to->isolated || !to->hostname || !to->python || !to->torch || !to->clock)
        return pp_error_nomem(err);
    if (describe_model(h, to, err) < 0)
        return -1;
    to->chip = chip_of(h);
    return fill_gpus(h->gpus, &to->gpus, err);
}

static int describe_layer(void *user, uint32_t id, pp_wire_layer *to, pp_error *err)
{
    pp_process *p = user;
    pp_ring_layer layer;
    if (pp_reader_layer(p->reader, id, &layer, err) < 0)
        return -1;
    to->name = clean_text(layer.name, PP_WIRE_MAX_TEXT);
    to->type = clean_text(layer.type, PP_WIRE_MAX_TEXT);
    to->parameters =
        layer.parameters >= 0 && layer.parameters < PP_WIRE_MAX_COUNT ? layer.parameters : 0;
    to->forward_skip = layer.skip_reason[0];
    to->backward_skip = layer.skip_reason[1];
    return to->name && to->type ? 0 : pp_error_nomem(err);
}

/* ---- batches ---- */

/* Counters of the ring since the last batch; a process that lets them run back is not believed. */
static void count(pp_process *p, pp_wire_batch *batch)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    uint64_t lost = h->lost > p->told.lost ? h->lost - p->told.lost : 0;
    uint64_t marks = h->marks > p->told.marks ? h->marks - p->told.marks : 0;
    int64_t cost = h->cost > p->told.cost ? h->cost - p->told.cost : 0;
    int64_t paused = h->paused > p->told.paused ? h->paused - p->told.paused : 0;
    batch->cost.paused = paused < PP_WIRE_MAX_COUNT ? paused : 0;
    batch->dropped = lost < PP_WIRE_MAX_COUNT / 2 ? (int64_t)lost : 0;
    batch->cost.marks = marks < PP_WIRE_MAX_COUNT ? (int64_t)marks : 0;
    batch->cost.nanoseconds = cost < PP_WIRE_MAX_COUNT ? cost : 0;
    p->told = (pp_ring_told){.lost = h->lost,
                             .marks = h->marks,
                             .cost = h->cost,
                             .paused = h->paused,
                             .process = (uint32_t)p->id + 1};
}

/* The runs so far, into a batch that ends at `end`: none is later, as the ring may say otherwise.
 */
static int tell_runs(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    batch->runs = calloc(p->run_count + 1, sizeof *batch->runs);
    if (!batch->runs)
        return pp_error_nomem(err);
    int64_t after = INT64_MIN;
    for (size_t i = 0; i < p->run_count; i++) {
        const pp_wire_run *r = &p->runs[i];
        if (r->start < after || r->start + r->duration > batch->capture.end)
            continue;
        after = r->start + r->duration;
        batch->runs[batch->run_count++] = *r;
    }
    p->run_count = 0;
    return 0;
}

/* Layers that only kernels, copies or waits name: of a step that an earlier batch told. */
static int add_layers(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    bool there[PP_RING_LAYERS + 1] = {true};
    bool named[PP_RING_LAYERS + 1] = {false};
    size_t most = batch->layer_count + 1;
    for (size_t i = 0; i < batch->layer_count; i++)
        there[batch->layers[i].id] = true;
    for (size_t i = 0; i < batch->kernels.count; i++)
        named[batch->kernels.rows[i].layer] = true;
    for (size_t i = 0; i < batch->waits.count; i++)
        named[batch->waits.rows[i].layer] = true;
    for (size_t i = 0; i < batch->copies.count; i++)
        named[batch->copies.rows[i].layer] = true;
    for (size_t id = 1; id <= PP_RING_LAYERS; id++)
        most += named[id] && !there[id];
    pp_wire_layer *layers = realloc(batch->layers, most * sizeof *layers);
    if (!layers)
        return pp_error_nomem(err);
    batch->layers = layers;
    for (uint32_t id = 1; id <= PP_RING_LAYERS; id++) {
        if (!named[id] || there[id])
            continue;
        layers[batch->layer_count] = (pp_wire_layer){.id = id};
        if (describe_layer(p, id, &layers[batch->layer_count++], err) < 0)
            return -1;
    }
    return 0;
}

static size_t kernel_text(const pp_wire_kernels *kernels)
{
    enum { ROW = 80 };
    size_t bytes = kernels->count * ROW;
    for (size_t i = 0; i < kernels->names.count; i++)
        bytes += 2 * strlen(kernels->names.items[i]); /* a quote takes two */
    return bytes;
}

/* Bytes of text that are left in a batch for its kernels, copies or waits, by what the rest takes
 * at most. */
static size_t room_in(const pp_wire_batch *batch)
{
    enum { ROW = 48, COPY = 100, ROOM = PP_WIRE_MAX_MESSAGE - (32 << 10) };
    const size_t bytes =
        (batch->interval_count + batch->grid.count + 2 * batch->step_count + batch->run_count) *
            ROW +
        batch->layer_count * PP_KERNEL_SUMS_LAYER_TEXT + kernel_text(&batch->kernels) +
        batch->copies.count * COPY;
    return bytes < ROOM ? ROOM - bytes : 0;
}

/* From row *at on. */
static int tell_kernels(pp_process *p, pp_wire_batch *batch, size_t *at, pp_error *err)
{
    return pp_kernel_sums_copy(p->sums, room_in(batch), at, &batch->kernels, err) < 0
               ? -1
               : add_layers(p, batch, err);
}

/* All of them, where there is room; else they go in batches of their own. */
static int tell_all_kernels(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    size_t at = 0;
    if (pp_kernel_sums_copy(p->sums, room_in(batch), &at, &batch->kernels, err) < 0)
        return -1;
    if (at == SIZE_MAX) {
        if (!pp_kernel_sums_over(p->sums))
            pp_kernel_sums_clear(p->sums);
        return add_layers(p, batch, err);
    }
    pp_strings_free(&batch->kernels.names);
    free(batch->kernels.rows);
    batch->kernels = (pp_wire_kernels){0};
    return 0;
}

/* From row *at on. */
static int tell_copies(pp_process *p, pp_wire_batch *batch, size_t *at, pp_error *err)
{
    return pp_copy_sums_copy(p->copies, room_in(batch), at, &batch->copies, err) < 0
               ? -1
               : add_layers(p, batch, err);
}

/* All of them, where there is room; else they go in batches of their own. */
static int tell_all_copies(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    size_t at = 0;
    if (!pp_copy_sums_due(p->copies))
        return 0;
    if (pp_copy_sums_copy(p->copies, room_in(batch), &at, &batch->copies, err) < 0)
        return -1;
    if (at == SIZE_MAX) {
        pp_copy_sums_clear(p->copies);
        return add_layers(p, batch, err);
    }
    free(batch->copies.rows);
    batch->copies = (pp_wire_copies){0};
    return 0;
}

static int describe_site(void *user, uint32_t number, pp_ring_site *ret, pp_error *err)
{
    const pp_process *p = user;
    return pp_reader_site(p->reader, number, ret, err);
}

/* From row *at on. */
static int tell_waits(pp_process *p, pp_wire_batch *batch, size_t *at, pp_error *err)
{
    return pp_wait_sums_copy(p->waits, room_in(batch), at, describe_site, p, &batch->waits, err) < 0
               ? -1
               : add_layers(p, batch, err);
}

/* All of them, where there is room; else they go in batches of their own. */
static int tell_all_waits(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    size_t at = 0;
    if (!pp_wait_sums_due(p->waits))
        return 0;
    if (pp_wait_sums_copy(p->waits, room_in(batch), &at, describe_site, p, &batch->waits, err) < 0)
        return -1;
    if (at == SIZE_MAX) {
        pp_wait_sums_clear(p->waits);
        return add_layers(p, batch, err);
    }
    pp_strings_free(&batch->waits.calls);
    pp_strings_free(&batch->waits.files);
    free(batch->waits.rows);
    batch->waits = (pp_wire_waits){0};
    return 0;
}

static const char *ring_of(const pp_process *p)
{
    const char *slash = strrchr(p->path, '/');
    return slash ? slash + 1 : p->path;
}

/* For what belongs to no capture: a batch of no time, at `at`. NULL with an error. */
static pp_wire_batch *make_timeless(const pp_process *p, pp_agent_pod *pod, int64_t at,
                                    pp_error *err)
{
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    batch->capture = (pp_wire_capture){.id = pod->captures++, .start = at, .end = at, .last = true};
    if (describe(p, &batch->process, err) == 0)
        return batch;
    pp_wire_batch_free(batch);
    return NULL;
}

/* It has no marks of its own. */
static void emit_timeless(const pp_process *p, const pp_agent_pod *pod, pp_wire_batch *batch)
{
    pp_place place = {.ring = ring_of(p), .tail = p->from, .told = p->told};
    pod->emit(pod->user, batch, 0, &place);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_kernels(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    for (size_t at = 0; at != SIZE_MAX;) {
        pp_wire_batch *batch = make_timeless(p, pod, p->now + p->offset, &err);
        const bool ok = batch && tell_kernels(p, batch, &at, &err) == 0;
        if (ok && batch->kernels.count > 0)
            emit_timeless(p, pod, batch);
        if (!ok)
            pp_warn(p->path, "kernels are not told: %s", err.message);
        if (!ok || batch->kernels.count == 0)
            at = SIZE_MAX;
        pp_wire_batch_free(batch);
    }
    pp_kernel_sums_clear(p->sums);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_copies(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    if (!pp_copy_sums_due(p->copies))
        return;
    for (size_t at = 0; at != SIZE_MAX;) {
        pp_wire_batch *batch = make_timeless(p, pod, p->now + p->offset, &err);
        if (batch && tell_copies(p, batch, &at, &err) == 0) {
            emit_timeless(p, pod, batch);
        } else {
            pp_warn(p->path, "copies are not told: %s", err.message);
            at = SIZE_MAX;
        }
        pp_wire_batch_free(batch);
    }
    pp_copy_sums_clear(p->copies);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_waits(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    for (size_t at = 0; at != SIZE_MAX && pp_wait_sums_due(p->waits);) {
        pp_wire_batch *batch = make_timeless(p, pod, p->now + p->offset, &err);
        if (batch && tell_waits(p, batch, &at, &err) == 0) {
            emit_timeless(p, pod, batch);
        } else {
            pp_warn(p->path, "waits of the host are not told: %s", err.message);
            at = SIZE_MAX;
        }
        pp_wire_batch_free(batch);
    }
    if (pp_wait_sums_due(p->waits))
        pp_wait_sums_clear(p->waits);
    const int64_t untold = pp_wait_sums_untold(p->waits);
    if (untold > p->untold)
        pp_warn(p->path, "%lld waits of the host are not told: there are too many lines and layers",
                (long long)(untold - p->untold));
    p->untold = untold;
}

static void cut(pp_process *p, pp_agent_pod *pod, bool last)
{
    pp_error err = {0};
    int64_t events = 0;
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    bool ok = batch && describe(p, &batch->process, &err) == 0 &&
              pp_batcher_cut(p->batcher, last, describe_layer, p, batch, &events, &err) == 0 &&
              tell_runs(p, batch, &err) == 0 && tell_all_kernels(p, batch, &err) == 0 &&
              tell_all_copies(p, batch, &err) == 0 && tell_all_waits(p, batch, &err) == 0;
    if (ok) {
        count(p, batch);
        pp_place place = {.ring = ring_of(p), .tail = p->to, .told = p->told};
        pod->emit(pod->user, batch, events, &place);
    } else {
        /* What was in it is lost, so its time must not count as observed. */
        pp_warn(p->path, "a batch could not be made: %s", batch ? err.message : "out of memory");
        pp_batcher_renumber(p->batcher, pod->captures++);
    }
    p->from = p->to;
    pp_wire_batch_free(batch);
    if (pp_kernel_sums_steps(p->sums) > 0 && !pp_kernel_sums_over(p->sums))
        emit_kernels(p, pod);
    emit_copies(p, pod);
    emit_waits(p, pod);
}

/* Ends a capture; one without a step is not worth a word. Marks before `next` are done with. */
static void end_capture(pp_process *p, pp_agent_pod *pod, uint64_t next)
{
    p->to = next;
    if (p->open && p->steps > 0)
        cut(p, pod, true);
    if (pp_kernel_sums_over(p->sums))
        pp_warn(p->path, "a capture's kernels are not told: there are too many names and layers");
    pp_kernel_sums_clear(p->sums);
    p->open = false;
    p->steps = 0;
    p->from = next;
}

/* Steps whose times are the kernels' come when the hook may be about other things. */
static void note_clock(pp_process *p, bool kernels)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    (void)snprintf(p->clock, sizeof p->clock, "%s", kernels ? "kernels" : clock_name(h->clock));
    (void)snprintf(p->why, sizeof p->why, "%s", kernels ? "" : h->kernels);
}

static void on_start(pp_process *p, pp_agent_pod *pod, const pp_step *step)
{
    end_capture(p, pod, step->at);
    if (p->id < 0)
        p->id = pod->processes++ % (PP_WIRE_MAX_PROCESS + 1);
    if (pod->first == 0)
        pod->first = step->end;
    pp_batcher_timeline(p->batcher, pod->timeline);
    pp_batcher_start(p->batcher, pod->captures++, step->end, p->offset);
    pp_batcher_dwell(p->batcher, step->dwell, step->background);
    note_clock(p, step->kernels);
    p->open = true;
    /* What an agent before this one left has waited: it is told before this one is killed, too. */
    p->cut_at = step->end < p->now ? step->end : p->now;
}

static int on_step(pp_process *p, pp_agent_pod *pod, const pp_step *step, pp_error *err)
{
    const bool over = pod->policy.max > 0 && p->sampled >= pod->policy.max && !step->dwell;
    if (!over && !pp_batcher_fits(p->batcher, step->count))
        cut(p, pod, false);
    if (step->kernels) {
        pp_kernel_sums_step(p->sums, !over && !step->dwell);
        pp_copy_sums_step(p->copies, !over && !step->dwell);
    }
    if (!over && !step->dwell)
        pp_wait_sums_add(p->waits, step);
    if (over)
        return 0; /* came between the last wanted step and the hook's hearing of it */
    p->sampled += step->dwell == 0;
    p->steps++;
    p->to = step->at; /* a capture that begins with this mark goes on where the batch ends */
    return pp_batcher_add(p->batcher, step, err);
}

static int on_event(pp_process *p, pp_agent_pod *pod, int event, const pp_step *step, pp_error *err)
{
    switch (event) {
    case PP_PAIRING_START:
        on_start(p, pod, step);
        return 0;
    case PP_PAIRING_STEP:
        return on_step(p, pod, step, err);
    case PP_PAIRING_STOP:
        if (p->monitor)
            pp_monitor_end(p->monitor);
        end_capture(p, pod, step->at + 1);
        return 0;
    default:
        return event;
    }
}

/* A batch of its own; of a session that may be over, none: it would be refused. */
static int emit_runs(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    if (!pod->allowed || p->schedule.finished)
        p->run_count = 0;
    if (p->run_count == 0 || p->id < 0)
        return 0;
    const pp_wire_run *last = &p->runs[p->run_count - 1];
    pp_wire_batch *batch = make_timeless(p, pod, last->start + last->duration, err);
    int rc = batch ? tell_runs(p, batch, err) : -1;
    if (rc == 0)
        emit_timeless(p, pod, batch);
    pp_wire_batch_free(batch);
    return rc;
}

/* Nothing before the year 2000, nothing to come. Where nobody may be told yet, the oldest go. */
static int take_run(pp_process *p, pp_agent_pod *pod, const pp_mark *mark, pp_error *err)
{
    if (p->stale || mark->layer == 0 || mark->value < 0 || mark->value > PP_WIRE_MAX_DURATION ||
        mark->time < mark->value || mark->time > p->now)
        return 0;
    pp_wire_run run = {.start = mark->time - mark->value + p->offset,
                       .duration = mark->value,
                       .steps = mark->layer};
    if (run.start < PP_WIRE_TIME_MIN)
        return 0;
    const pp_wire_run *before = p->run_count ? &p->runs[p->run_count - 1] : NULL;
    const int64_t over = before ? before->start + before->duration - run.start : 0;
    if (over > 0 && over < CLOCKS_APART)
        run.start += over; /* it began where that one ended, by another look at both clocks */
    if (p->run_count == PP_WIRE_MAX_RUNS)
        memmove(p->runs, p->runs + 1, --p->run_count * sizeof *p->runs);
    p->runs[p->run_count++] = run;
    return p->run_count >= RUNS_AT_ONCE && !p->open ? emit_runs(p, pod, err) : 0;
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
    pp_step step = *pp_pairing_step(p->pairing);
    step.at = p->at;
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
    if (!pp_pairing_running(p->pairing) && !pp_kernels_waiting(p->kernels) && !p->open)
        p->from = taken;
    if (taken - p->from > HELD_MAX && pp_batcher_steps(p->batcher) > 0)
        cut(p, pod, false);
    if (taken - p->from > HELD_MAX)
        p->from = taken;
    return pp_reader_release(p->reader, p->from, &p->told, err);
}

/* Names of kernels that have come. */
static int take_names(pp_process *p, pp_error *err)
{
    long n;
    do {
        n = pp_reader_names(p->reader, pp_kernel_sums_named(p->sums), p->name_buffer, NAMES_AT_ONCE,
                            err);
        if (n < 0 || pp_kernel_sums_name(p->sums, p->name_buffer, (size_t)n, err) < 0)
            return -1;
    } while (n > 0);
    return 0;
}

static int drain_kernels(pp_process *p, pp_error *err)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        long n = pp_reader_take_kernels(p->reader, p->kernel_buffer, KERNELS_AT_ONCE, err);
        if (n <= 0)
            return (int)n;
        if (take_names(p, err) < 0)
            return -1;
        for (long i = 0; i < n; i++)
            if (pp_kernels_add(p->kernels, &p->kernel_buffer[i], err) < 0)
                return -1;
    }
    return 0;
}

/* Losses of kernels are heeded before a step that they may fall into is handed on. */
static int join(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    if (drain_kernels(p, err) < 0)
        return -1;
    pp_kernels_lost(p->kernels, pp_reader_header(p->reader)->kernels_lost);
    uint64_t late = pp_kernels_late(p->kernels);
    if (late > 0 && p->late == 0)
        pp_warn(p->path, "kernels came after their step was told: its busy times lack them");
    p->late = late;
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

/* ---- PM sampling ---- */

static void free_layers(pp_wire_layer *layers, size_t n)
{
    for (size_t i = 0; layers && i < n; i++) {
        free(layers[i].name);
        free(layers[i].type);
    }
    free(layers);
}

static pp_wire_layer *name_items(pp_process *p, const pp_sampling_result *r, pp_error *err)
{
    pp_wire_layer *layers = calloc(r->n + 1, sizeof *layers);
    if (!layers) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (r->items[i].layer > 0 && describe_layer(p, r->items[i].layer, &layers[i], err) < 0) {
            free_layers(layers, i + 1);
            return NULL;
        }
    }
    return layers;
}

/* Each layer once; items come by layer. */
static int add_pm_layers(pp_wire_batch *batch, const pp_sampling_report *report, pp_error *err)
{
    const pp_sampling_result *r = report->estimates->result;
    batch->layers = calloc(r->n + 1, sizeof *batch->layers);
    if (!batch->layers)
        return pp_error_nomem(err);
    for (size_t i = 0; i < r->n; i++) {
        const pp_wire_layer *from = &report->layers[i];
        if (!from->name || (i > 0 && r->items[i].layer == r->items[i - 1].layer))
            continue;
        pp_wire_layer *to = &batch->layers[batch->layer_count++];
        *to = (pp_wire_layer){.id = r->items[i].layer,
                              .name = strdup(from->name),
                              .type = strdup(from->type),
                              .parameters = from->parameters};
        if (!to->name || !to->type)
            return pp_error_nomem(err);
    }
    return 0;
}

/* What to tell of it, or why nothing more will be told, where there is no report. */
static int add_pm(pp_wire_batch *batch, const pp_sampling_report *report, const char *why,
                  pp_error *err)
{
    if (report)
        return add_pm_layers(batch, report, err) < 0
                   ? -1
                   : pp_estimates_tell(report->estimates, &batch->pm, err);
    batch->pm.why = clean_text(why, PP_WIRE_MAX_REASON);
    return batch->pm.why ? 0 : pp_error_nomem(err);
}

/* A batch of its own: what they tell comes when a capture is over. */
static int emit_pm(pp_process *p, pp_agent_pod *pod, const pp_sampling_report *report,
                   const char *why, pp_error *err)
{
    pp_wire_batch *batch = make_timeless(p, pod, p->now + p->offset, err);
    int rc = batch ? add_pm(batch, report, why, err) : -1;
    if (rc == 0)
        emit_timeless(p, pod, batch);
    pp_wire_batch_free(batch);
    return rc;
}

static void report_estimates(pp_process *p, pp_agent_pod *pod, const pp_monitor_estimates *e)
{
    pp_error err = {0};
    pp_wire_layer *layers = name_items(p, e->result, &err);
    pp_sampling_report report = {
        .process = p->id, .gpu = e->sampler->gpu, .estimates = e, .layers = layers};
    if (!layers || emit_pm(p, pod, &report, "", &err) < 0)
        pp_warn(p->path, "estimates are not told: %s", err.message);
    else if (pod->take_pm)
        pod->take_pm(pod->user, &report, "");
    free_layers(layers, e->result->n);
}

static void report_pm(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    pp_monitor_estimates e;
    if (pp_monitor_take(p->monitor, &e)) {
        e.lag -= p->offset; /* of CLOCK_MONOTONIC, which means nothing elsewhere */
        e.lag_guess -= p->offset;
        report_estimates(p, pod, &e);
    }
    const char *why = pp_monitor_why(p->monitor);
    if (!*why || p->told_why || p->id < 0) /* a process is told of from its first capture on */
        return;
    p->told_why = true;
    pp_warn(p->path, "the GPU is not sampled: %s", why);
    if (emit_pm(p, pod, NULL, why, &err) < 0)
        pp_warn(p->path, "failed to report it: %s", err.message);
    if (pod->take_pm)
        pod->take_pm(pod->user, NULL, why);
}

static void heed(pp_process *p, pp_monitor_advice advice, pp_ring_mode *mode)
{
    if (*mode != PP_RING_SAMPLE || advice == PP_MONITOR_GO)
        return;
    if (pp_pairing_running(p->pairing)) {
        if (advice != PP_MONITOR_STOP || pp_reader_header(p->reader)->isolating ||
            (uint64_t)pp_reader_header(p->reader)->steps - p->steps_before < FIRST_STEPS)
            return;
        pp_schedule_begin_anew(&p->schedule);
    }
    *mode = PP_RING_COUNT;
}

/* The mode to ask for, where samples have to come first. */
static int sample_gpu(pp_process *p, pp_agent_pod *pod, pp_ring_mode *mode, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    if (!p->monitor && pod->sampling_period > 0 && !p->stale) {
        if (pp_monitor_new(p->path, pod->sampling_period, &p->monitor, err) < 0)
            return -1;
    }
    if (!p->monitor ||
        pp_reader_gone(p->reader)) /* its sampler goes with it, for no other reason */
        return 0;
    const bool running = pp_pairing_running(p->pairing);
    if (!running)
        p->steps_before = (uint64_t)h->steps;
    const bool recorded = running && strcmp(h->clock, "kernels") == 0;
    pp_monitor_input input = {.now = p->now,
                              .realtime = p->offset,
                              .wanted = *mode == PP_RING_SAMPLE && (recorded || !running),
                              .running = recorded,
                              .over = p->schedule.finished || pod->over,
                              .hook = h->pm};
    heed(p, pp_monitor_poll(p->monitor, &input), mode);
    report_pm(p, pod);
    return 0;
}

static void end_sampling(pp_process *p)
{
    pp_monitor_free(p->monitor, true);
    p->monitor = NULL;
    p->told_why = false;
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
    if (sample_gpu(p, pod, &mode, err) < 0)
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
    end_sampling(p);
    p->stale = true;
    p->schedule = (pp_schedule){0};
    p->sampled = 0;
    return pp_reader_set_session(p->reader, p->session, err);
}

/* The hook is idle: what it lost and cost until now is not the new session's. */
static void begin_session(pp_process *p)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    p->stale = false;
    p->run_count = 0;
    pp_kernel_sums_clear(p->sums);
    pp_copy_sums_forget(p->copies);
    pp_wait_sums_forget(p->waits);
    p->told.lost = h->lost;
    p->told.marks = h->marks;
    p->told.cost = h->cost;
    p->told.paused = p->paused_before = h->paused;
}

void pp_process_finish(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    uint64_t taken = pp_reader_taken(p->reader);
    (void)pp_pairing_end(p->pairing);
    pp_kernels_finish(p->kernels);
    if (pump(p, pod, &err) < 0)
        pp_warn(p->path, "steps are lost: %s", err.message);
    end_capture(p, pod, taken);
    if (emit_runs(p, pod, &err) < 0)
        pp_warn(p->path, "counted steps are not told: %s", err.message);
    if (p->monitor) {
        pp_monitor_finish(p->monitor);
        report_pm(p, pod);
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
    if (fill_gpus(h->gpus, &gpus, &err) == 0)
        pod->use_gpus(pod->user, &gpus);
    pp_strings_free(&gpus);
}

/* What the hook has to say besides marks. */
static void listen(pp_process *p, pp_agent_pod *pod)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    tell_gpus(p, pod);
    if (h->refusal[0] && !p->refused) {
        p->refused = true;
        PP_CLEANUP_FREE char *why = clean_text(h->refusal, sizeof h->refusal);
        (void)snprintf(p->refusal, sizeof p->refusal, "%s", why ? why : "?");
        pp_warn(p->path, "this process is not profiled: %s", p->refusal);
    }
    if (h->copies[0] && !p->told_copies) {
        p->told_copies = true;
        PP_CLEANUP_FREE char *why = clean_text(h->copies, sizeof h->copies);
        pp_warn(p->path, "copies and fills are not recorded: %s", why ? why : "?");
    }
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
    return !p->open && pod->first > 0 && pod->policy.duration > 0 &&
           p->now - pod->first > pod->policy.duration - ENDING;
}

int pp_process_poll(pp_process *p, pp_agent_pod *pod, int64_t now, int64_t real, pp_error *err)
{
    if (p->now == 0 && pp_reader_kernels_taken(p->reader) > 0)
        pp_kernels_since(p->kernels, now); /* an agent before this one took what was before */
    p->now = now;
    p->offset = real - now;
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
    if (pp_batcher_steps(p->batcher) > 0 && now - p->cut_at >= BATCH_EVERY) {
        cut(p, pod, false);
        p->cut_at = now;
        if (release(p, pod, err) < 0)
            return -1;
    }
    if (is_ending(p, pod) && emit_runs(p, pod, err) < 0)
        return -1;
    return greet(p, now, err) < 0 ? -1 : set_mode(p, pod, now, err);
}
