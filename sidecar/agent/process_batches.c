/* What a process has gathered, made into batches and handed on. */
#include "sidecar/agent/process_internal.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/text.h"
#include "sidecar/agent/sum_part.h"
#include "sidecar/agent/text.h"

#include <stdio.h>
#include <string.h>

/* ---- what the user's process says of itself, made fit for the wire ---- */

char *process_clean_text(const char *text, size_t max)
{
    char *copy = strdup(*text ? text : "?");
    if (!copy)
        return NULL;
    if (strlen(copy) > max)
        copy[max] = '\0';
    pp_text_clean(copy);
    return copy;
}

int process_fill_gpus(const char *text, pp_strings *gpus, pp_error *err)
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

const char *process_clock_name(const char *text)
{
    static const char *const names[] = {"kernels", "cuda"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return names[i];
    return "host";
}

/* As the driver tells it; NULL: it tells nothing of that GPU. */
static const pp_ring_device *device_of(const pp_process *p, const process_gpu *g)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    if (g->device >= 0)
        return h->devices[g->device].uuid[0] ? &h->devices[g->device] : NULL;
    for (int i = 0; i < PP_RING_DEVICES; i++)
        if (h->devices[i].uuid[0] && strcmp(h->devices[i].uuid, h->gpus) == 0)
            return &h->devices[i];
    return NULL;
}

/* Where the driver tells nothing it is what the hook knows of the process' one. */
int process_name_gpu(const pp_process *p, const process_gpu *g, pp_strings *gpus, pp_error *err)
{
    const pp_ring_device *d = device_of(p, g);
    if (d)
        return process_fill_gpus(d->uuid, gpus, err);
    return p->gpu_count == 1 ? process_fill_gpus(pp_reader_header(p->reader)->gpus, gpus, err) : 0;
}

static pp_chip chip_of(const pp_ring_device *d)
{
    if (!d)
        return (pp_chip){0};
    const pp_chip chip = {d->capability, d->multiprocessors, d->sm_khz, d->memory_khz,
                          d->memory_bits};
    return pp_wire_chip_is_known(&chip) ? chip : (pp_chip){0};
}

/* NULL: out of memory. */
static char *model_of(const pp_ring_header *h, const pp_ring_device *d)
{
    const bool told = d && d->model >= 1 && d->model <= PP_RING_MODELS;
    const char *model = told ? h->gpu_models[d->model - 1] : "";
    return *model ? process_clean_text(model, PP_WIRE_MAX_VERSION) : strdup("");
}

/* What is not known is empty. */
static int describe_model(const pp_ring_header *h, pp_wire_process *to, pp_error *err)
{
    to->model = process_clean_text(h->model, PP_WIRE_MAX_TEXT);
    to->digest = strdup(pp_wire_is_digest(h->model_digest) ? h->model_digest : "");
    to->batch = h->batch[0] ? process_clean_text(h->batch, PP_WIRE_MAX_BATCH) : strdup("");
    return to->model && to->digest && to->batch ? 0 : pp_error_nomem(err);
}

static int describe(const pp_process *p, const process_gpu *g, pp_wire_process *to, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    to->id = g->id;
    to->world_size = h->world_size >= 1 && h->world_size <= PP_WIRE_MAX_PROCESS ? h->world_size : 1;
    to->rank = h->rank >= 0 && h->rank < to->world_size ? h->rank : 0;
    to->hostname = process_clean_text(h->hostname, PP_WIRE_MAX_TEXT);
    to->python = process_clean_text(h->python, PP_WIRE_MAX_VERSION);
    to->torch = process_clean_text(h->torch, PP_WIRE_MAX_VERSION);
    to->clock = strdup(*p->clock ? p->clock : process_clock_name(h->clock));
    to->kernels = p->why[0] ? process_clean_text(p->why, PP_WIRE_MAX_VERSION) : strdup("");
    to->isolated =
        h->isolated[0] ? process_clean_text(h->isolated, sizeof h->isolated) : strdup("");
    if (!to->kernels || !to->isolated || !to->hostname || !to->python || !to->torch || !to->clock)
        return pp_error_nomem(err);
    if (describe_model(h, to, err) < 0)
        return -1;
    const pp_ring_device *device = device_of(p, g);
    to->gpu_model = model_of(h, device);
    if (!to->gpu_model)
        return pp_error_nomem(err);
    to->chip = chip_of(device);
    to->further = !process_is_first(p, g);
    return process_name_gpu(p, g, &to->gpus, err);
}

int process_describe_layer(void *user, uint32_t id, pp_wire_layer *to, pp_error *err)
{
    pp_process *p = user;
    pp_ring_layer layer;
    if (pp_reader_layer(p->reader, id, &layer, err) < 0)
        return -1;
    to->name = process_clean_text(layer.name, PP_WIRE_MAX_TEXT);
    to->type = process_clean_text(layer.type, PP_WIRE_MAX_TEXT);
    to->parameters =
        layer.parameters >= 0 && layer.parameters < PP_WIRE_MAX_COUNT ? layer.parameters : 0;
    to->forward_skip = layer.skip_reason[0];
    to->backward_skip = layer.skip_reason[1];
    to->whole = layer.whole_reason ? layer.whole_reason : pp_graphs_why(p->graphs, id);
    return to->name && to->type ? 0 : pp_error_nomem(err);
}

/* ---- batches ---- */

static int64_t count_of(uint64_t now, uint64_t before)
{
    const uint64_t since = now > before ? now - before : 0;
    return since < PP_WIRE_MAX_COUNT ? (int64_t)since : 0;
}

static void count_missing(pp_process *p, pp_wire_batch *batch)
{
    const pp_kernels_missing now = pp_kernels_what_is_missing(p->kernels);
    batch->left_out = (pp_wire_left_out){.steps = count_of(now.steps, p->missing.steps),
                                         .lost = count_of(now.lost, p->missing.lost),
                                         .late = count_of(now.late, p->missing.late)};
    p->missing = now;
    p->told.kernels_lost = pp_kernels_heeded(p->kernels);
}

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
    p->told.lost = h->lost;
    p->told.marks = h->marks;
    p->told.cost = h->cost;
    p->told.paused = h->paused;
    count_missing(p, batch);
}

uint64_t process_tail(const pp_process *p)
{
    const uint64_t taken = pp_reader_taken(p->reader);
    size_t i = 0;
    while (i < p->run_count && taken - p->run_at[i] > PROCESS_HELD_MAX)
        i++; /* it goes with the agent, rather than that steps in flight do */
    return i < p->run_count && p->run_at[i] < p->from ? p->run_at[i] : p->from;
}

/* The runs so far, into a batch; those that ended behind it wait for the next one. */
static int tell_runs(pp_process *p, pp_wire_batch *batch, pp_error *err)
{
    batch->runs = calloc(p->run_count + 1, sizeof *batch->runs);
    if (!batch->runs)
        return pp_error_nomem(err);
    int64_t after = INT64_MIN;
    size_t kept = 0;
    for (size_t i = 0; i < p->run_count; i++) {
        const pp_wire_run r = p->runs[i];
        if (r.start + r.duration > batch->capture.end) {
            p->run_at[kept] = p->run_at[i];
            p->runs[kept++] = r;
        } else if (r.start >= after) {
            after = r.start + r.duration;
            batch->runs[batch->run_count++] = r;
        }
    }
    p->run_count = kept;
    return 0;
}

/* Layers that only kernels, copies, waits or memory name: of a step that an earlier batch told. */
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
    for (size_t i = 0; i < batch->memory.count; i++)
        named[batch->memory.rows[i].layer] = true;
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
        if (process_describe_layer(p, id, &layers[batch->layer_count++], err) < 0)
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
    enum { ROW = 48, COPY = 100, MEMORY = 64, ROOM = PP_WIRE_MAX_MESSAGE - (32 << 10) };
    const size_t bytes =
        (batch->interval_count + batch->grid.count + 2 * batch->step_count + batch->run_count) *
            ROW +
        batch->layer_count * PP_SUM_LAYER_TEXT + kernel_text(&batch->kernels) +
        batch->copies.count * COPY + batch->memory.count * MEMORY;
    return bytes < ROOM ? ROOM - bytes : 0;
}

/* From row *at on. */
static int tell_kernels(pp_process *p, process_gpu *g, pp_wire_batch *batch, size_t *at,
                        pp_error *err)
{
    return pp_kernel_sums_copy(g->sums, room_in(batch), at, &batch->kernels, err) < 0
               ? -1
               : add_layers(p, batch, err);
}

/* All of them, where there is room; else they go in batches of their own. */
static int tell_all_kernels(pp_process *p, process_gpu *g, pp_wire_batch *batch, pp_error *err)
{
    size_t at = 0;
    if (pp_kernel_sums_copy(g->sums, room_in(batch), &at, &batch->kernels, err) < 0)
        return -1;
    if (at == SIZE_MAX) {
        if (!pp_kernel_sums_over(g->sums))
            pp_kernel_sums_clear(g->sums);
        return add_layers(p, batch, err);
    }
    pp_strings_free(&batch->kernels.names);
    free(batch->kernels.rows);
    batch->kernels = (pp_wire_kernels){0};
    return 0;
}

/* From row *at on. */
static int tell_copies(pp_process *p, process_gpu *g, pp_wire_batch *batch, size_t *at,
                       pp_error *err)
{
    return pp_copy_sums_copy(g->copies, room_in(batch), at, &batch->copies, err) < 0
               ? -1
               : add_layers(p, batch, err);
}

/* All of them, where there is room; else they go in batches of their own. */
static int tell_all_copies(pp_process *p, process_gpu *g, pp_wire_batch *batch, pp_error *err)
{
    size_t at = 0;
    if (!pp_copy_sums_due(g->copies))
        return 0;
    if (pp_copy_sums_copy(g->copies, room_in(batch), &at, &batch->copies, err) < 0)
        return -1;
    if (at == SIZE_MAX) {
        pp_copy_sums_clear(g->copies);
        return add_layers(p, batch, err);
    }
    free(batch->copies.rows);
    batch->copies = (pp_wire_copies){0};
    return 0;
}

/* From row *at on. */
static int tell_memory(pp_process *p, pp_wire_batch *batch, size_t *at, pp_error *err)
{
    return pp_memory_sums_copy(p->memory, room_in(batch), at, &batch->memory, err) < 0
               ? -1
               : add_layers(p, batch, err);
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

pp_wire_batch *process_make_timeless(const pp_process *p, const process_gpu *g, pp_agent_pod *pod,
                                     int64_t at, pp_error *err)
{
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    batch->capture = (pp_wire_capture){.id = pod->captures++, .start = at, .end = at, .last = true};
    if (describe(p, g, &batch->process, err) == 0)
        return batch;
    pp_wire_batch_free(batch);
    return NULL;
}

void process_emit_timeless(const pp_process *p, const pp_agent_pod *pod, pp_wire_batch *batch)
{
    pp_place place = {.ring = pp_text_file_name(p->path), .tail = process_tail(p), .told = p->told};
    pod->emit(pod->user, batch, 0, &place);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_kernels(pp_process *p, process_gpu *g, pp_agent_pod *pod)
{
    pp_error err = {0};
    for (size_t at = 0; at != SIZE_MAX;) {
        pp_wire_batch *batch = process_make_timeless(p, g, pod, p->now + p->offset, &err);
        const bool ok = batch && tell_kernels(p, g, batch, &at, &err) == 0;
        if (ok && batch->kernels.count > 0)
            process_emit_timeless(p, pod, batch);
        if (!ok)
            pp_warn(p->path, "kernels are not told: %s", err.message);
        if (!ok || batch->kernels.count == 0)
            at = SIZE_MAX;
        pp_wire_batch_free(batch);
    }
    pp_kernel_sums_clear(g->sums);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_copies(pp_process *p, process_gpu *g, pp_agent_pod *pod)
{
    pp_error err = {0};
    if (!pp_copy_sums_due(g->copies))
        return;
    for (size_t at = 0; at != SIZE_MAX;) {
        pp_wire_batch *batch = process_make_timeless(p, g, pod, p->now + p->offset, &err);
        if (batch && tell_copies(p, g, batch, &at, &err) == 0) {
            process_emit_timeless(p, pod, batch);
        } else {
            pp_warn(p->path, "copies are not told: %s", err.message);
            at = SIZE_MAX;
        }
        pp_wire_batch_free(batch);
    }
    pp_copy_sums_clear(g->copies);
}

/* In batches of no time, since the steps are in none. */
static void emit_memory(pp_process *p, pp_agent_pod *pod)
{
    const process_gpu *g = &p->gpus[0];
    pp_error err = {0};
    for (size_t at = 0; at != SIZE_MAX && pp_memory_sums_due(p->memory);) {
        pp_wire_batch *batch = process_make_timeless(p, g, pod, p->now + p->offset, &err);
        if (batch && tell_memory(p, batch, &at, &err) == 0) {
            process_emit_timeless(p, pod, batch);
        } else {
            pp_warn(p->path, "what layers allocate is not told: %s", err.message);
            at = SIZE_MAX;
        }
        pp_wire_batch_free(batch);
    }
    pp_memory_sums_clear(p->memory);
}

/* Those that no batch of the capture had room for: in as many of no time as it takes. */
static void emit_waits(pp_process *p, pp_agent_pod *pod)
{
    const process_gpu *g = &p->gpus[0];
    pp_error err = {0};
    for (size_t at = 0; at != SIZE_MAX && pp_wait_sums_due(p->waits);) {
        pp_wire_batch *batch = process_make_timeless(p, g, pod, p->now + p->offset, &err);
        if (batch && tell_waits(p, batch, &at, &err) == 0) {
            process_emit_timeless(p, pod, batch);
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

/* What the hook has cost and lost since it was told last. */
static void emit_costs(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    const uint64_t marks = p->told.marks;
    pp_wire_batch *batch = process_make_timeless(p, &p->gpus[0], pod, p->now + p->offset, &err);
    if (batch) {
        count(p, batch);
        if (p->told.marks != marks || pp_wire_leaves_out(&batch->left_out))
            process_emit_timeless(p, pod, batch);
    } else {
        pp_warn(p->path, "what the hook costs is not told: %s", err.message);
    }
    pp_wire_batch_free(batch);
}

void process_emit_missing(pp_process *p, pp_agent_pod *pod)
{
    pp_error err = {0};
    const pp_kernels_missing now = pp_kernels_what_is_missing(p->kernels);
    const process_gpu *first = &p->gpus[0];
    if (first->id < 0 || !pod->allowed || memcmp(&now, &p->missing, sizeof now) == 0)
        return;
    pp_wire_batch *batch = process_make_timeless(p, first, pod, p->now + p->offset, &err);
    if (batch) {
        count(p, batch);
        process_emit_timeless(p, pod, batch);
    } else {
        pp_warn(p->path, "what kernels are missing is not told: %s", err.message);
    }
    pp_wire_batch_free(batch);
}

/* The hook's cost and the host's waits are the process's: they go with its first GPU. */
static int fill_batch(pp_process *p, process_gpu *g, bool last, pp_wire_batch *batch,
                      int64_t *ret_events, pp_error *err)
{
    if (describe(p, g, &batch->process, err) < 0 ||
        pp_batcher_cut(g->batcher, last, process_describe_layer, p, batch, ret_events, err) < 0 ||
        tell_runs(p, batch, err) < 0 || tell_all_kernels(p, g, batch, err) < 0 ||
        tell_all_copies(p, g, batch, err) < 0)
        return -1;
    if (!process_is_first(p, g))
        return 0;
    if (tell_all_waits(p, batch, err) < 0)
        return -1;
    count(p, batch);
    return 0;
}

/* The runs of a batch that was emitted, of each other GPU that has been told: in a batch of its
 * own, since one that runs nothing any more has no other, and its runs would hold the marks for
 * ever. */
static int emit_runs_of_others(const pp_process *p, pp_agent_pod *pod, const pp_wire_batch *told,
                               pp_error *err)
{
    if (told->run_count == 0)
        return 0;
    const pp_wire_run *last = &told->runs[told->run_count - 1];
    for (size_t i = 0; i < p->gpu_count; i++) {
        const process_gpu *g = &p->gpus[i];
        if (g->id < 0 || g->id == told->process.id)
            continue;
        pp_wire_batch *batch = process_make_timeless(p, g, pod, last->start + last->duration, err);
        if (batch)
            batch->runs = calloc(told->run_count, sizeof *batch->runs);
        if (batch && batch->runs) {
            memcpy(batch->runs, told->runs, told->run_count * sizeof *batch->runs);
            batch->run_count = told->run_count;
            process_emit_timeless(p, pod, batch);
        }
        const bool ok = batch && batch->runs;
        pp_wire_batch_free(batch);
        if (!ok)
            return pp_error_nomem(err);
    }
    return 0;
}

void process_cut_gpu(pp_process *p, process_gpu *g, pp_agent_pod *pod, bool last)
{
    pp_error err = {0};
    int64_t events = 0;
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    if (batch && fill_batch(p, g, last, batch, &events, &err) == 0) {
        p->from = p->to;
        pp_place place = {
            .ring = pp_text_file_name(p->path), .tail = process_tail(p), .told = p->told};
        pod->emit(pod->user, batch, events, &place);
        if (emit_runs_of_others(p, pod, batch, &err) < 0)
            pp_warn(p->path, "counted steps are not told: %s", err.message);
    } else {
        /* What was in it is lost, so its time must not count as observed. */
        pp_warn(p->path, "a batch could not be made: %s", batch ? err.message : "out of memory");
        pp_batcher_renumber(g->batcher, pod->captures++);
    }
    p->from = p->to;
    pp_wire_batch_free(batch);
    if (pp_kernel_sums_steps(g->sums) > 0 && !pp_kernel_sums_over(g->sums))
        emit_kernels(p, g, pod);
    emit_copies(p, g, pod);
    if (process_is_first(p, g)) {
        emit_waits(p, pod);
        emit_memory(p, pod);
    }
}

void process_cut_rest(pp_process *p, pp_agent_pod *pod)
{
    if (p->gpus[0].open)
        return;
    emit_costs(p, pod);
    emit_waits(p, pod);
    emit_memory(p, pod);
}

void process_cut(pp_process *p, pp_agent_pod *pod)
{
    for (size_t i = 0; i < p->gpu_count; i++)
        if (p->gpus[i].open)
            process_cut_gpu(p, &p->gpus[i], pod, false);
    process_cut_rest(p, pod);
}

/* Of a session that may be over, none: they would be refused. */
int process_emit_runs(pp_process *p, pp_agent_pod *pod, pp_error *err)
{
    const process_gpu *g = &p->gpus[0];
    if (!pod->allowed || p->schedule.finished)
        p->run_count = 0;
    if (p->run_count == 0 || g->id < 0)
        return 0;
    const pp_wire_run *last = &p->runs[p->run_count - 1];
    pp_wire_batch *batch = process_make_timeless(p, g, pod, last->start + last->duration, err);
    int rc = batch ? tell_runs(p, batch, err) : -1;
    p->run_count = 0; /* one that ended behind the last is the ring's mistake */
    if (rc == 0) {
        process_emit_timeless(p, pod, batch);
        rc = emit_runs_of_others(p, pod, batch, err);
    }
    pp_wire_batch_free(batch);
    return rc;
}
