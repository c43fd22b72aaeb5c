/* What the samples of GPUs' performance monitors tell of a process. */
#include "sidecar/agent/process_internal.h"

#include "common/log.h"
#include "sidecar/agent/estimates.h"

#include <string.h>

enum {
    FIRST_STEPS = 4
}; /* are taken before samples are waited for: the training may be over soon */

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
        if (r->items[i].layer > 0 &&
            process_describe_layer(p, r->items[i].layer, &layers[i], err) < 0) {
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
    batch->pm.why = process_clean_text(why, PP_WIRE_MAX_REASON);
    return batch->pm.why ? 0 : pp_error_nomem(err);
}

/* A batch of its own: what they tell comes when a capture is over. */
static int emit_pm(pp_process *p, const process_gpu *g, pp_agent_pod *pod,
                   const pp_sampling_report *report, const char *why, pp_error *err)
{
    pp_wire_batch *batch = process_make_timeless(p, g, pod, p->now + p->offset, err);
    int rc = batch ? add_pm(batch, report, why, err) : -1;
    if (rc == 0)
        process_emit_timeless(p, pod, batch);
    pp_wire_batch_free(batch);
    return rc;
}

static void report_estimates(pp_process *p, const process_gpu *g, pp_agent_pod *pod,
                             const pp_monitor_estimates *e)
{
    pp_error err = {0};
    pp_wire_layer *layers = name_items(p, e->result, &err);
    pp_sampling_report report = {
        .process = g->id, .gpu = e->sampler->gpu, .estimates = e, .layers = layers};
    if (!layers || emit_pm(p, g, pod, &report, "", &err) < 0)
        pp_warn(p->path, "estimates are not told: %s", err.message);
    else if (pod->take_pm)
        pod->take_pm(pod->user, &report, "");
    free_layers(layers, e->result->n);
}

void process_report_pm(pp_process *p, process_gpu *g, pp_agent_pod *pod)
{
    pp_error err = {0};
    pp_monitor_estimates e;
    if (pp_monitor_take(g->monitor, &e)) {
        e.lag -= p->offset; /* of CLOCK_MONOTONIC, which means nothing elsewhere */
        e.lag_guess -= p->offset;
        report_estimates(p, g, pod, &e);
    }
    const char *why = pp_monitor_why(g->monitor);
    if (!*why || g->told_why || g->id < 0) /* a process is told of from its first capture on */
        return;
    g->told_why = true;
    pp_warn(p->path, "the GPU is not sampled: %s", why);
    if (emit_pm(p, g, pod, NULL, why, &err) < 0)
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

static int make_monitors(pp_process *p, const pp_agent_pod *pod, pp_error *err)
{
    for (size_t i = 0; i < p->gpu_count; i++)
        if (!p->gpus[i].monitor && pod->sampling_period > 0 && !p->stale &&
            pp_monitor_new(p->path, pod->sampling_period, pod->keep_windows, &p->gpus[i].monitor,
                           err) < 0)
            return -1;
    return 0;
}

/* What the hook says of a GPU's sampler, as pp_monitor_input has it. Of several it is known which
 * is whose once each has run a kernel. */
static const char *sampler_of(const pp_process *p, const process_gpu *g)
{
    static const char none[] = "no module is on this GPU";
    const pp_ring_header *h = pp_reader_header(p->reader);
    if (h->samplers == 0)
        return process_is_first(p, g) || strcmp(h->pm, "started") != 0 ? h->pm : none;
    if (g->device < 0)
        return "";
    if (!(h->samplers >> g->device & 1))
        return none;
    pp_monitor_aim(g->monitor, p->path, g->device);
    if (h->samplers_started >> g->device & 1)
        return "started";
    return h->samplers_failed >> g->device & 1 ? h->pm : "";
}

int process_sample_gpus(pp_process *p, pp_agent_pod *pod, pp_ring_mode *mode, pp_error *err)
{
    const pp_ring_header *h = pp_reader_header(p->reader);
    if (make_monitors(p, pod, err) < 0)
        return -1;
    if (!p->gpus[0].monitor ||
        pp_reader_gone(p->reader)) /* its sampler goes with it, for no other reason */
        return 0;
    const bool running = pp_pairing_running(p->pairing);
    if (!running)
        p->steps_before = (uint64_t)h->steps;
    const bool recorded = running && strcmp(h->clock, "kernels") == 0;
    pp_monitor_input input = {.now = p->now,
                              .realtime = p->offset,
                              .parts = (unsigned)__builtin_popcount(h->samplers),
                              .wanted = *mode == PP_RING_SAMPLE && (recorded || !running),
                              .running = recorded,
                              .over = p->schedule.finished || pod->over};
    for (size_t i = 0; i < p->gpu_count; i++) {
        process_gpu *g = &p->gpus[i];
        input.hook = sampler_of(p, g);
        heed(p, pp_monitor_poll(g->monitor, &input), mode);
        process_report_pm(p, g, pod);
    }
    return 0;
}

void process_end_sampling(pp_process *p)
{
    for (size_t i = 0; i < p->gpu_count; i++) {
        pp_monitor_free(p->gpus[i].monitor, true);
        p->gpus[i].monitor = NULL;
        p->gpus[i].told_why = false;
    }
}
