#include "operator/workloads/workload_text.h"

#include "operator/http_server/metrics.h"
#include "operator/workloads/label_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LABELS = 3 * PP_LABEL_VALUE + 128 };

static const pp_family_info families[PP_WORKLOAD_FAMILIES] = {
    [PP_WORKLOAD_INFO] = {"precisionprobe_workload_info", "session, session_uid, bound",
                          "1; the newest session of the workload that Succeeded, and what bounds "
                          "most of a step."},
    [PP_WORKLOAD_FINISHED] = {"precisionprobe_workload_finished_timestamp_seconds", "",
                              "When that session ended, in seconds since 1970."},
    [PP_WORKLOAD_GPUS] = {"precisionprobe_workload_gpus", "",
                          "GPUs of the workload in that session, which all that follows is a mean "
                          "over."},
    [PP_WORKLOAD_LAYERS] = {"precisionprobe_workload_layers", "",
                            "Layers of the model, told apart or not."},
    [PP_WORKLOAD_STEP] = {"precisionprobe_workload_step_seconds", "",
                          "Time of a step, without the probe where steps were counted."},
    [PP_WORKLOAD_IDLE] = {"precisionprobe_workload_idle_ratio", "",
                          "Share of a step in which no kernel ran."},
    [PP_WORKLOAD_BOUND] = {"precisionprobe_workload_bound_ratio", "bound",
                           "Share of a step that is bound by this."},
    [PP_WORKLOAD_USAGE] = {"precisionprobe_workload_usage_ratio", "metric",
                           "Mean of a metric that is a share, over a step."},
    [PP_WORKLOAD_MEMORY] = {"precisionprobe_workload_memory_bytes", "",
                            "Mean of the GPU's memory in use."},
    [PP_WORKLOAD_TRANSFER] = {"precisionprobe_workload_transfer_bytes_per_second", "metric",
                              "Mean of what the GPU sends or receives."},
    [PP_WORKLOAD_POWER] = {"precisionprobe_workload_power_watts", "",
                           "Mean of the GPU's power draw."},
    [PP_WORKLOAD_CLOCK] = {"precisionprobe_workload_sm_clock_hertz", "",
                           "Mean of the clock of the GPU's SMs."},
    [PP_WORKLOAD_COST] = {"precisionprobe_workload_probe_cost_ratio", "",
                          "What the probe has cost, by its own count, as a share of the training's "
                          "time in that session."},
    [PP_WORKLOAD_BUDGET] = {"precisionprobe_workload_probe_budget_ratio", "",
                            "What that session let the probe cost."},
    [PP_LAYER_SECONDS] = {"precisionprobe_layer_step_seconds", "layer, phase",
                          "Time of a marked step in this layer and phase; the sum over all is the "
                          "step."},
    [PP_LAYER_BUSY] = {"precisionprobe_layer_busy_seconds", "layer, phase",
                       "Time of a marked step in which kernels of this layer and phase ran."},
    [PP_LAYER_SHARE] = {"precisionprobe_layer_step_ratio", "layer, phase",
                        "Share of the marked steps' time in this layer and phase."},
    [PP_LAYER_USAGE] = {"precisionprobe_layer_usage_ratio", "layer, phase, metric",
                        "A metric that is a share, of this layer in this phase."},
};

const pp_family_info *pp_workload_family_get(pp_workload_family family)
{
    return &families[family];
}

int pp_workload_text_head(const pp_family_info *info, pp_buf *out, pp_error *err)
{
    return pp_buf_printf(out, err, "# HELP %s %s\n# TYPE %s gauge\n", info->name, info->help,
                         info->name);
}

pp_workload_family pp_workload_family_of(pp_metric metric, double value, double *ret_value)
{
    static const struct {
        const char *unit;
        pp_workload_family family;
        double times, over;
    } units[] = {
        {"share of 1", PP_WORKLOAD_USAGE, 1, 1},          {"percent", PP_WORKLOAD_USAGE, 1, 100},
        {"MiB", PP_WORKLOAD_MEMORY, 1 << 20, 1},          {"MHz", PP_WORKLOAD_CLOCK, 1e6, 1},
        {"bytes per second", PP_WORKLOAD_TRANSFER, 1, 1}, {"watts", PP_WORKLOAD_POWER, 1, 1}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].unit, pp_metric_get(metric)->unit) != 0)
            continue;
        *ret_value = value * units[i].times / units[i].over;
        return units[i].family;
    }
    return PP_WORKLOAD_FAMILIES;
}

/* ---- figures ---- */

static void forget_metrics(double metrics[PP_METRIC_COUNT])
{
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        metrics[i] = (double)NAN;
}

void pp_workload_figures_init(pp_workload_figures *f)
{
    const double unknown = (double)NAN;
    *f = (pp_workload_figures){.gpus = unknown,
                               .layers = unknown,
                               .step_seconds = unknown,
                               .idle = unknown,
                               .cost = unknown,
                               .budget = unknown};
    for (int i = 0; i < PP_BOUND_COUNT; i++)
        f->bounds[i] = unknown;
    forget_metrics(f->metrics);
}

void pp_workload_figures_done(pp_workload_figures *f)
{
    for (size_t i = 0; i < f->n_rows; i++)
        free(f->rows[i].layer);
    free(f->rows);
    free(f->ns);
    free(f->kind);
    free(f->name);
    free(f->session);
    free(f->uid);
    *f = (pp_workload_figures){0};
}

pp_layer_figures *pp_workload_figures_add(pp_workload_figures *f)
{
    if ((f->n_rows & (f->n_rows - 1)) == 0) { /* full at each power of two */
        pp_layer_figures *rows =
            realloc(f->rows, (f->n_rows ? 2 * f->n_rows : 1) * sizeof *f->rows);
        if (!rows)
            return NULL;
        f->rows = rows;
    }
    pp_layer_figures *row = &f->rows[f->n_rows++];
    const double unknown = (double)NAN;
    *row = (pp_layer_figures){.seconds = unknown, .busy_seconds = unknown, .share = unknown};
    forget_metrics(row->metrics);
    return row;
}

/* ---- lines ---- */

/** Where a workload's lines go; nothing more does after a failure. */
typedef struct writer {
    pp_workload_text *text;
    char workload[MAX_LABELS]; /* its labels */
    pp_error *err;
    bool failed;
} writer;

/** `labels`: those beside the workload's, each after a comma. What is not known has no line. */
static void put(writer *w, pp_workload_family family, const char *labels, double value)
{
    char number[40];
    if (w->failed || isnan(value))
        return;
    pp_metrics_format_number(number, sizeof number, value);
    w->failed = pp_buf_printf(&w->text->lines[family], w->err, "%s{%s%s} %s\n",
                              families[family].name, w->workload, labels, number) < 0;
}

static void put_metrics(writer *w, const double metrics[PP_METRIC_COUNT])
{
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        char labels[64] = "";
        double value = 0;
        const pp_workload_family family = pp_workload_family_of((pp_metric)i, metrics[i], &value);
        if (family == PP_WORKLOAD_FAMILIES)
            continue;
        if (family == PP_WORKLOAD_USAGE || family == PP_WORKLOAD_TRANSFER)
            (void)snprintf(labels, sizeof labels, ",metric=\"%s\"",
                           pp_metric_get((pp_metric)i)->column);
        put(w, family, labels, value);
    }
}

static pp_bound main_bound(const double bounds[PP_BOUND_COUNT])
{
    pp_bound most = PP_BOUND_UNKNOWN;
    for (int i = 0; i < PP_BOUND_COUNT; i++) {
        if (!isnan(bounds[i]) && (isnan(bounds[most]) || bounds[i] > bounds[most]))
            most = (pp_bound)i;
    }
    return most;
}

static void put_workload(writer *w, const pp_workload_figures *f)
{
    char session[PP_LABEL_VALUE];
    char uid[PP_LABEL_VALUE];
    char labels[2 * PP_LABEL_VALUE + 64];
    pp_label_value(f->session, session);
    pp_label_value(f->uid, uid);
    (void)snprintf(labels, sizeof labels, ",session=\"%s\",session_uid=\"%s\",bound=\"%s\"",
                   session, uid, pp_bound_name(main_bound(f->bounds)));
    put(w, PP_WORKLOAD_INFO, labels, 1);
    put(w, PP_WORKLOAD_FINISHED, "", (double)f->finished_ns / 1e9);
    put(w, PP_WORKLOAD_GPUS, "", f->gpus);
    put(w, PP_WORKLOAD_LAYERS, "", f->layers);
    put(w, PP_WORKLOAD_STEP, "", f->step_seconds);
    put(w, PP_WORKLOAD_IDLE, "", f->idle);
    for (int i = 0; i < PP_BOUND_COUNT; i++) {
        (void)snprintf(labels, sizeof labels, ",bound=\"%s\"", pp_bound_name((pp_bound)i));
        put(w, PP_WORKLOAD_BOUND, labels, f->bounds[i]);
    }
    put_metrics(w, f->metrics);
    put(w, PP_WORKLOAD_COST, "", f->cost);
    put(w, PP_WORKLOAD_BUDGET, "", f->budget);
}

static void put_row(writer *w, const pp_layer_figures *row)
{
    char layer[PP_LABEL_VALUE] = PP_LABEL_REST;
    char labels[PP_LABEL_VALUE + 64];
    if (row->layer)
        pp_label_value(row->layer, layer);
    const int n = snprintf(labels, sizeof labels, ",layer=\"%s\",phase=\"%s\"", layer, row->phase);
    put(w, PP_LAYER_SECONDS, labels, row->seconds);
    put(w, PP_LAYER_BUSY, labels, row->busy_seconds);
    put(w, PP_LAYER_SHARE, labels, row->share);
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        double value = 0;
        if (pp_workload_family_of((pp_metric)i, row->metrics[i], &value) != PP_WORKLOAD_USAGE)
            continue; /* a level or a rate of a whole GPU is no layer's */
        (void)snprintf(labels + n, sizeof labels - (size_t)n, ",metric=\"%s\"",
                       pp_metric_get((pp_metric)i)->column);
        put(w, PP_LAYER_USAGE, labels, value);
    }
}

int pp_workload_text_write(const pp_workload_figures *f, pp_workload_text *ret, pp_error *err)
{
    writer w = {.text = ret, .err = err};
    char ns[PP_LABEL_VALUE];
    char kind[PP_LABEL_VALUE];
    char name[PP_LABEL_VALUE];
    for (int i = 0; i < PP_WORKLOAD_FAMILIES; i++)
        pp_buf_init(&ret->lines[i], PP_WORKLOAD_TEXT_MAX);
    pp_label_value(f->ns, ns);
    pp_label_value(f->kind, kind);
    pp_label_value(f->name, name);
    (void)snprintf(w.workload, sizeof w.workload,
                   "workload_namespace=\"%s\",workload_kind=\"%s\",workload_name=\"%s\"", ns, kind,
                   name);
    put_workload(&w, f);
    for (size_t i = 0; i < f->n_rows; i++)
        put_row(&w, &f->rows[i]);
    if (w.failed)
        pp_workload_text_done(ret);
    return w.failed ? -1 : 0;
}

void pp_workload_text_done(pp_workload_text *text)
{
    for (int i = 0; i < PP_WORKLOAD_FAMILIES; i++)
        pp_buf_done(&text->lines[i]);
}

/* ---- pages ---- */

static size_t bytes_of(const pp_workload_text *text, int from, int to)
{
    size_t n = 0;
    for (int i = from; i < to; i++)
        n += text->lines[i].len;
    return n;
}

/** How many of the first `n` have room for their families `from` to `to`; takes it off. */
static size_t fit(const pp_workload_text *const *texts, size_t n, int from, int to, size_t *room)
{
    size_t fitting = 0;
    while (fitting < n && bytes_of(texts[fitting], from, to) <= *room)
        *room -= bytes_of(texts[fitting++], from, to);
    return fitting;
}

int pp_workload_text_page(const pp_workload_text *const *texts, size_t n, pp_buf *out,
                          pp_workload_page *ret, pp_error *err)
{
    enum { HEADS = PP_WORKLOAD_FAMILIES * 512 };
    size_t room = out->max - out->len > HEADS ? out->max - out->len - HEADS : 0;
    const size_t own = fit(texts, n, 0, PP_WORKLOAD_FIRST_OF_LAYERS, &room);
    const size_t layers = fit(texts, own, PP_WORKLOAD_FIRST_OF_LAYERS, PP_WORKLOAD_FAMILIES, &room);
    *ret = (pp_workload_page){.left_out = n - own, .without_layers = own - layers};
    for (int f = 0; f < PP_WORKLOAD_FAMILIES && own > 0; f++) {
        if (pp_workload_text_head(&families[f], out, err) < 0)
            return -1;
        for (size_t i = 0; i < (f < PP_WORKLOAD_FIRST_OF_LAYERS ? own : layers); i++) {
            const pp_buf *lines = &texts[i]->lines[f];
            if (lines->len && pp_buf_append(out, lines->data, lines->len, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* ---- sessions ---- */

const pp_family_info pp_session_failed_info = {
    "precisionprobe_session_failed_timestamp_seconds", "session_namespace, session, reason",
    "When this session failed, in seconds since 1970, and why, as long as its object is there."};

int pp_workload_text_failed(const char *ns, const char *session, const char *reason, int64_t at_ns,
                            pp_buf *out, pp_error *err)
{
    char labels[3][PP_LABEL_VALUE];
    char number[40];
    pp_label_value(ns, labels[0]);
    pp_label_value(session, labels[1]);
    pp_label_value(reason, labels[2]);
    pp_metrics_format_number(number, sizeof number, (double)at_ns / 1e9);
    return pp_buf_printf(out, err, "%s{session_namespace=\"%s\",session=\"%s\",reason=\"%s\"} %s\n",
                         pp_session_failed_info.name, labels[0], labels[1], labels[2], number);
}
