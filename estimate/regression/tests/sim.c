#include "estimate/regression/tests/sim.h"

#include "estimate/regression/tests/peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORIGIN_NS 1769000000000000000LL
#define CELL_NS 10000000LL
#define SPELL_NS 10e9 /* of the timer that takes windows over */

typedef struct piece {
    double start, end; /* ns from the origin */
    int item;          /* n_items: other, n_items + 1: idle */
    bool first;        /* of a call: what follows of it is no piece of its own */
    bool gap;          /* of a call: no kernel runs */
    double value[SIM_METRICS];
} piece;

typedef struct run {
    piece *pieces;
    size_t n, cap;
    uint64_t rng;
    double now;
    double pace; /* of the spell that the machine is in */
    double spell_end;
    double length; /* of this step, beside the mean */
    double clock;  /* of this spell, beside the highest */
    double clock_end;
    double draw[256][SIM_METRICS]; /* this step's values */
    double item_clock[256];        /* beside the highest */
} run;

static const double scale[SIM_METRICS] = {1, 1, 1, 1, 100, 1};

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

sim_config sim_defaults(uint64_t seed)
{
    return (sim_config){.seed = seed,
                        .duration = 135,
                        .step = 3,
                        .layers = 10,
                        .tiny = 0.003,
                        .window = 0.25,
                        .scrape = 0.25,
                        .delay = 0.12,
                        .delay_jitter = 0.01,
                        .drift = 3e-4,
                        .scrape_jitter = 0.002,
                        .noise = 0.002,
                        .cv = 0.05,
                        .contention = 1};
}

/* Items: forward layer i at 2 i, its activation at 2 i + 1; backward after these; then the step's
 * own phases, of which the optimizer is the first. */
static void items_make(sim *s)
{
    int l = s->config.layers, n = 4 * l + (s->config.short_phases ? 4 : 1);
    s->items = need(calloc((size_t)n, sizeof *s->items));
    s->names = need(calloc((size_t)n, sizeof *s->names));
    for (int i = 0; i < n; i++) {
        int k = i % (2 * l);
        (void)snprintf(s->names[i], sizeof s->names[i], i >= 4 * l ? "step" : "net.%d", k);
        s->items[i].layer = s->names[i];
        s->items[i].phase = i < 2 * l    ? PP_PHASE_FORWARD
                            : i < 4 * l  ? PP_PHASE_BACKWARD
                            : i == 4 * l ? PP_PHASE_OPTIMIZER
                                         : PP_PHASE_ZERO_GRAD + (i - 4 * l - 1);
    }
    s->in.items = s->items;
    s->in.n_items = (size_t)n;
}

static void sparse_make(sim *s)
{
    uint64_t rng = s->config.seed + 44;
    for (size_t i = 0; i <= s->in.n_items; i++)
        for (size_t m = 1; m < 4; m++)
            if (sim_uniform(&rng) < s->config.sparse)
                s->truth[i * SIM_METRICS + m] = 0;
}

static void truth_make(sim *s, run *r, double *weight)
{
    size_t rows = s->in.n_items + 2, layers = 4 * (size_t)s->config.layers;
    s->truth = need(calloc(rows * SIM_METRICS, sizeof(double)));
    s->realised = need(calloc(rows * SIM_METRICS, sizeof(double)));
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        bool idle = i == rows - 1;
        for (int m = 0; m < SIM_METRICS; m++)
            s->truth[i * SIM_METRICS + (size_t)m] =
                m == 5 ? 1437
                : idle ? 0
                       : scale[m] * (0.05 + 0.9 * sim_uniform(&r->rng));
        if (i + 1 >= rows)
            continue;
        bool layer = i < layers && i % 2 == 0;
        weight[i] = layer ? 0.04 + 0.08 * sim_uniform(&r->rng)
                          : s->config.tiny * pow(sim_uniform(&r->rng), 2);
        if (i >= layers && i < s->in.n_items)
            weight[i] = i == layers ? 0.02 : 0.001;
        if (s->config.even)
            weight[i] = layer;
        sum += weight[i];
    }
    for (size_t i = 0; i + 1 < rows; i++)
        weight[i] /= sum;
}

static double value_of(const sim *s, const run *r, int item, int m)
{
    if ((size_t)item > s->in.n_items)
        return s->truth[(size_t)item * SIM_METRICS + (size_t)m];
    double v = r->draw[item][m];
    if (m < 5)
        v *= pow(r->length, s->config.rise);
    return m == 2 ? v * r->clock : v;
}

static void piece_add(sim *s, run *r, int item, double length, bool first, bool gap)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 1024;
        r->pieces = need(realloc(r->pieces, r->cap * sizeof *r->pieces));
    }
    piece *p = &r->pieces[r->n++];
    *p = (piece){r->now, floor(r->now + length * 1e9 + 1), item, first, gap, {0}};
    for (int m = 0; m < SIM_METRICS; m++)
        p->value[m] = gap && m < 5 ? 0 : fmin(value_of(s, r, item, m), m < 5 ? scale[m] : 1e9);
    r->now = p->end;
}

/** A machine shared with others: spells of a third to some seconds at half or full pace. */
static double duration(sim *s, run *r, double nominal)
{
    if (r->now >= r->spell_end) {
        r->spell_end = r->now + 1e9 * (0.3 + 3 * sim_uniform(&r->rng));
        r->pace = 1 + s->config.contention * (sim_uniform(&r->rng) < 0.5 ? 0.9 : 0) *
                          (0.5 + sim_uniform(&r->rng));
    }
    if (s->config.throttle > 0 && r->now >= r->clock_end) {
        r->clock_end = r->now + 1e9 * (1 + 9 * sim_uniform(&r->rng));
        r->clock = sim_uniform(&r->rng) < 0.5 ? 1 : 1 / (1 + s->config.throttle);
    }
    double spread = 0.03 + 0.12 * s->config.contention;
    if (s->config.even)
        return nominal;
    return nominal * r->length / r->clock * r->pace / (1 + 0.45 * s->config.contention) *
           exp(spread * sim_normal(&r->rng));
}

/* A call of an item. Where kernels are told, those take as long whatever keeps it waiting between
 * them, in stalls of some ms. */
static void call_add(sim *s, run *r, int item, double nominal)
{
    double length = duration(s, r, nominal);
    if (!s->config.kernels) {
        piece_add(s, r, item, length, true, false);
        return;
    }
    double work = 0.6 * nominal * r->length / r->clock * exp(0.03 * sim_normal(&r->rng));
    double busy = fmin(1, work / length);
    int parts = (int)ceil(length / 0.002);
    for (int i = 0; i < parts; i++) {
        piece_add(s, r, item, length / parts * busy, i == 0, false);
        if (busy < 1)
            piece_add(s, r, item, length / parts * (1 - busy), false, true);
    }
}

static void clocks_make(const sim *s, run *r)
{
    uint64_t rng = s->config.seed + 55;
    const double slow = s->config.slow > 0 ? s->config.slow : 0.25;
    for (size_t i = 0; i < sizeof r->item_clock / sizeof *r->item_clock; i++)
        r->item_clock[i] = sim_uniform(&rng) < slow ? 1 - s->config.clocks : 1;
}

static void step_draw(sim *s, run *r)
{
    if (s->config.lengths > 0)
        r->length = exp(s->config.lengths * sim_normal(&r->rng));
    for (size_t i = 0; i <= s->in.n_items; i++)
        for (int m = 0; m < SIM_METRICS; m++) {
            double t = s->truth[i * SIM_METRICS + (size_t)m];
            double v = m == 5 ? t : t * (1 + s->config.cv * sim_normal(&r->rng));
            r->draw[i][m] = m == 5 ? v : fmin(fmax(v, 0), scale[m]);
        }
}

static void step_run(sim *s, run *r, const double *weight)
{
    int l = s->config.layers, n = (int)s->in.n_items;
    double step = s->config.step, gap = step * weight[n] / (4 * l + 2);
    step_draw(s, r);
    call_add(s, r, n, gap);
    for (int i = 0; i < 4 * l; i++) {
        /* Backward runs through the layers in reverse, activation before its layer. */
        int item = i < 2 * l ? i : 2 * l + (4 * l - 1 - i);
        call_add(s, r, item, step * weight[item]);
        call_add(s, r, n, gap);
    }
    for (int i = 4 * l; i < n; i++)
        call_add(s, r, i, step * weight[i]);
    call_add(s, r, n, gap);
}

/** Returns the step's end, before the pause. */
static int64_t step_and_pause(sim *s, run *r, const double *weight)
{
    step_run(s, r, weight);
    int64_t end = (int64_t)r->now;
    if (s->config.idle > 0)
        piece_add(s, r, (int)s->in.n_items + 1, s->config.idle * (0.5 + sim_uniform(&r->rng)), true,
                  false);
    return end;
}

static void activity_make(sim *s, run *r, const double *weight)
{
    double total = s->config.duration * 1e9;
    int captures = s->config.captures > 0 ? s->config.captures : 1;
    size_t cap = (size_t)(s->config.duration / s->config.step * 4) + 64, n = 0;
    s->steps = need(calloc(cap, sizeof *s->steps));
    s->captures = need(calloc((size_t)captures, sizeof *s->captures));
    s->in.steps = s->steps;
    s->in.observed = s->captures;
    for (int k = 0; k < captures; k++) {
        for (int i = 0; i < 2; i++) /* not sampled */
            step_and_pause(s, r, weight);
        s->captures[k].start_ns = ORIGIN_NS + (int64_t)r->now;
        while (r->now < total * (k + 1) / captures && n < cap) {
            s->steps[n].start_ns = ORIGIN_NS + (int64_t)r->now;
            s->steps[n++].end_ns = ORIGIN_NS + step_and_pause(s, r, weight);
        }
        s->captures[k].end_ns = ORIGIN_NS + (int64_t)r->now;
    }
    s->in.n_steps = n;
    s->in.n_observed = (size_t)captures;
    for (int i = 0; i < 3; i++)
        step_and_pause(s, r, weight);
}

static bool sampled(const sim *s, const piece *p)
{
    for (size_t k = 0; k < s->in.n_observed; k++)
        if (p->start >= (double)(s->captures[k].start_ns - ORIGIN_NS) &&
            p->end <= (double)(s->captures[k].end_ns - ORIGIN_NS))
            return true;
    return false;
}

/** The hook and what moves the GPU are two observers; a busy machine lets one come late. */
static double late(const sim *s, uint64_t *rng, double at)
{
    if (s->config.late_marks <= 0)
        return at;
    double u = sim_uniform(rng), wait = -1e9 * s->config.late_marks * log(1 - sim_uniform(rng));
    return u < 0.1 ? floor(at + wait) : at;
}

/* Which layer a call is told to be of: its own, unless names are dealt anew in each step. */
static uint32_t told_item(const sim *s, uint64_t *rng, int item)
{
    int layers = 4 * s->config.layers, phase = item / (2 * s->config.layers);
    if (!s->config.shuffled || item >= layers || item % 2 != 0)
        return (uint32_t)item;
    return (uint32_t)(2 * (s->config.layers * phase + (int)(sim_uniform(rng) * s->config.layers)));
}

static void intervals_make(sim *s, const run *r)
{
    s->intervals = need(calloc(r->n + 1, sizeof *s->intervals));
    size_t n = 0;
    uint64_t rng = s->config.seed + 99, deal = s->config.seed + 77;
    bool other = s->config.kernels &&
                 !s->config.kernels_untold; /* where kernels are told, those of `other` are, too */
    for (size_t i = 0; i < r->n; i++) {
        const piece *p = &r->pieces[i];
        if ((size_t)p->item >= s->in.n_items + other || !sampled(s, p))
            continue;
        double start = late(s, &rng, p->start), end = late(s, &rng, p->end);
        end = fmax(start, end);
        int64_t kernels = p->gap ? 0 : (int64_t)(end - start);
        if (p->first || n == 0)
            s->intervals[n++] = (pp_regression_interval){ORIGIN_NS + (int64_t)start, 0,
                                                         told_item(s, &deal, p->item), 0};
        s->intervals[n - 1].end_ns = ORIGIN_NS + (int64_t)end;
        s->intervals[n - 1].kernels_ns += kernels;
    }
    s->in.intervals = s->intervals;
    s->in.n_intervals = n;
    s->in.kernels_known = other;
}

/** The same activity as sums on cells: what the wire sends above its rate limit. */
static void cells_make(sim *s)
{
    size_t cap = 1024, n = 0;
    s->cells = need(malloc(cap * sizeof *s->cells));
    for (size_t i = 0; i < s->in.n_intervals; i++) {
        const pp_regression_interval *v = &s->intervals[i];
        for (int64_t at = v->start_ns - v->start_ns % CELL_NS; at < v->end_ns; at += CELL_NS) {
            int64_t a = v->start_ns > at ? v->start_ns : at;
            int64_t b = v->end_ns < at + CELL_NS ? v->end_ns : at + CELL_NS;
            if (n == cap)
                s->cells = need(realloc(s->cells, (cap *= 2) * sizeof *s->cells));
            double busy = (double)v->kernels_ns / (double)(v->end_ns - v->start_ns);
            s->cells[n++] = (pp_regression_cell){at, CELL_NS, b - a, v->item,
                                                 (int64_t)(busy * (double)(b - a))};
        }
    }
    s->in.cells = s->cells;
    s->in.n_cells = n;
    s->in.n_intervals = 0;
}

static void means_make(sim *s, const run *r)
{
    size_t rows = s->in.n_items + 2;
    double *time = need(calloc(rows, sizeof *time)), total = 0;
    for (size_t i = 0; i < r->n; i++) {
        const piece *p = &r->pieces[i];
        if (!sampled(s, p))
            continue;
        time[p->item] += p->gap && !s->config.kernels_untold ? 0 : p->end - p->start;
        total += p->end - p->start;
        for (int m = 0; m < SIM_METRICS; m++)
            s->realised[(size_t)p->item * SIM_METRICS + (size_t)m] +=
                p->value[m] * (p->end - p->start);
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t m = 0; m < SIM_METRICS; m++) {
            s->job[m] += s->realised[i * SIM_METRICS + m] / total;
            s->realised[i * SIM_METRICS + m] /= time[i] > 0 ? time[i] : 1;
        }
    free(time);
}

typedef struct exporter {
    double published;
    double value[SIM_METRICS];
    double next_end;
    double next_publish;
    double tick;        /* of the timer that takes windows over */
    double tick_period; /* in this spell */
    double spell_end;
    size_t piece;
    int zeros;               /* windows to come that read 0 */
    double sum[SIM_METRICS]; /* of windows since the value before */
    int count;
} exporter;

/** The timer's first tick at `ready` or later. */
static double taken_at(const sim *s, run *r, exporter *e, double ready)
{
    const double window = 1e9 * s->config.window;
    while (e->tick < ready) {
        if (e->tick >= e->spell_end) {
            const double spread = exp(s->config.taken_spread * sim_normal(&r->rng));
            e->tick_period = window + (1e9 * s->config.taken_every - window) * spread;
            e->spell_end = e->tick + SPELL_NS;
        }
        e->tick += e->tick_period;
    }
    return e->tick;
}

static void publish_plan(const sim *s, run *r, exporter *e)
{
    e->next_end += s->config.window * 1e9;
    e->next_publish =
        e->next_end + 1e9 * (s->config.delay + s->config.delay_jitter * sim_uniform(&r->rng));
    if (s->config.taken_every > 0)
        e->next_publish = taken_at(s, r, e, e->next_publish);
}

/* All but memory, which has a clock of its own, and utilisation. */
static bool is_of_cycles(int m)
{
    return m != 2 && m < 4;
}

/* Mean of one metric over the time, or the cycles, in [start, end). */
static double mean_over(const run *r, size_t *at, int m, double start, double end)
{
    double sum = 0, cycles = 0;
    while (*at > 0 && r->pieces[*at].start > start)
        (*at)--;
    while (*at < r->n && r->pieces[*at].end <= start)
        (*at)++;
    for (size_t i = *at; i < r->n && r->pieces[i].start < end; i++) {
        double a = fmax(start, r->pieces[i].start), b = fmin(end, r->pieces[i].end);
        double clock = is_of_cycles(m) ? r->item_clock[r->pieces[i].item] : 1;
        sum += r->pieces[i].value[m] * (b - a) * clock;
        cycles += (b - a) * clock;
    }
    return cycles > 0 ? sum / cycles : 0;
}

static void collect(sim *s, run *r, exporter *e)
{
    double jitter = 1e9 * s->config.edge_jitter, half = 0.5e9 * s->config.window;
    double start = e->next_end - s->config.window * 1e9 + jitter * sim_normal(&r->rng);
    double end = e->next_end + jitter * sim_normal(&r->rng);
    for (int m = 0; m < SIM_METRICS; m++) {
        double from = start, to = end;
        if (s->config.multiplexed && m < 4)
            *(m % 2 ? &from : &to) = m % 2 ? start + half : end - half;
        if (m == 4 && s->config.util_period > 0)
            from = end - 1e9 * s->config.util_period;
        e->value[m] = mean_over(r, &e->piece, m, from, to);
    }
    for (int m = 0; m < SIM_METRICS; m++) {
        double v = e->value[m] + (m == 5 ? 0 : scale[m] * s->config.noise * sim_normal(&r->rng)) +
                   (m < 4 ? s->config.tenant : 0);
        v = m == 5 ? round(v) : fmin(fmax(v, 0), scale[m]);
        e->value[m] = m == 4 && s->config.whole_percent ? round(v) : v;
        if (e->zeros > 0)
            e->value[m] = 0;
    }
    e->zeros -= e->zeros > 0;
    for (int m = 0; m < SIM_METRICS; m++)
        e->sum[m] += e->value[m];
    e->count++;
}

/* What a busy machine does to a scrape. */
static void stall(const sim *s, run *r, exporter *e, double *stamp, double *read)
{
    *read = *stamp;
    if (s->config.read_late > 0)
        *read -= 1e9 * s->config.read_late * log(1 - sim_uniform(&r->rng));
    if (s->config.stalls <= 0 || sim_uniform(&r->rng) >= s->config.stalls)
        return;
    double more = -1e9 * s->config.stall * log(1 - sim_uniform(&r->rng));
    double where = sim_uniform(&r->rng);
    if (where < 0.7)
        *read += more;
    else
        e->next_publish += more;
    if (where >= 0.4 && where < 0.7)
        *stamp += more;
}

/* The exporter comes back with a grid of its own. */
static void restart(const sim *s, run *r, exporter *e, double at, bool *any)
{
    e->zeros = s->config.zeros;
    e->next_end = at - 1e9 * s->config.window * (1 + sim_uniform(&r->rng));
    publish_plan(s, r, e);
    *any = false;
}

static void samples_make(sim *s, run *r)
{
    double last = r->pieces[r->n - 1].end, scrape = s->config.scrape * 1e9;
    size_t cap = (size_t)(last / scrape) + 16, n = 0;
    for (int m = 0; m < SIM_METRICS; m++)
        s->samples[m] = need(calloc(cap, sizeof **s->samples));
    s->read_end = need(calloc(cap, sizeof *s->read_end));
    exporter e = {.next_end = 1e9 * s->config.window * (1 + sim_uniform(&r->rng))};
    s->first_end = e.next_end + s->config.window * 1e9;
    if (s->config.taken_every > 0)
        e.tick = s->config.window * 1e9 * sim_uniform(&r->rng);
    publish_plan(s, r, &e);
    bool any = false;
    double at = scrape * (1 + sim_uniform(&r->rng)), outage = 0.4 * last;
    double busy_until = 0; /* a scrape that comes while one runs is left out */
    bool away = false;
    for (; at < last && n < cap; at += scrape * (1 + s->config.drift)) {
        double stamp = at + fabs(1e9 * s->config.scrape_jitter * sim_normal(&r->rng)), read;
        if (at >= outage && at < outage + 1e9 * s->config.outage) {
            away = true;
            continue;
        }
        if (away && s->config.restart)
            restart(s, r, &e, at, &any);
        away = false;
        if (at < busy_until)
            continue;
        stall(s, r, &e, &stamp, &read);
        busy_until = read;
        while (e.next_publish <= read) {
            collect(s, r, &e);
            publish_plan(s, r, &e);
            any = true;
        }
        if (!any || sim_uniform(&r->rng) < s->config.lost || read > stamp + scrape)
            continue;
        if (s->config.since_before && e.count == 0)
            continue;
        for (int m = 0; m < SIM_METRICS; m++)
            s->samples[m][n] =
                (pp_regression_sample){ORIGIN_NS + (int64_t)(stamp / 1e6) * 1000000,
                                       s->config.since_before ? e.sum[m] / e.count : e.value[m]};
        memset(e.sum, 0, sizeof e.sum);
        e.count = 0;
        s->read_end[n++] = e.next_end - s->config.window * 1e9;
    }
    static const char *const names[] = {"SMActive",   "SMOccupancy", "DRAMActive",
                                        "FP32Active", "GPUUtil",     "GPUMem"};
    for (int m = 0; m < SIM_METRICS; m++)
        s->metrics[m] = (pp_regression_metric){.name = names[m],
                                               .min = m == 5 ? (double)NAN : 0,
                                               .max = m == 5 ? (double)NAN : scale[m],
                                               .idle_is_zero = m < 4,
                                               .of_cycles = is_of_cycles(m),
                                               .samples = s->samples[m],
                                               .n_samples = n};
    s->in.metrics = s->metrics;
    s->in.n_metrics = SIM_METRICS;
}

sim *sim_new(const sim_config *config)
{
    sim *s = need(calloc(1, sizeof *s));
    run *r = need(calloc(1, sizeof *r));
    double weight[256];
    s->config = *config;
    s->run = r;
    r->rng = config->seed * 7919 + 12345;
    r->length = r->clock = 1;
    for (int i = 0; i < 8; i++)
        (void)sim_uniform(&r->rng);
    items_make(s);
    truth_make(s, r, weight);
    if (s->config.sparse > 0)
        sparse_make(s);
    clocks_make(s, r);
    activity_make(s, r, weight);
    intervals_make(s, r);
    means_make(s, r);
    samples_make(s, r);
    if (config->grid)
        cells_make(s);
    s->in.options.since_before = config->since_before;
    if (!config->no_hints) {
        double window = config->window_hint > 0 ? config->window_hint : config->window;
        s->in.options.window_ns = llround(window * 1e9);
        s->in.options.scrape_ns = llround(config->scrape * 1e9);
    }
    return s;
}

size_t sim_windows(const sim *s, pp_regression_window *ret)
{
    size_t n = 0;
    for (size_t j = 0; j < s->metrics[0].n_samples; j++) {
        const double end = s->read_end[j], before = j > 0 ? s->read_end[j - 1] : 0;
        const double start =
            s->config.since_before && j > 0 ? before : end - 1e9 * s->config.window;
        if (end <= before || (s->config.since_before && j == 0))
            continue;
        pp_regression_window *w = &ret[n++];
        *w = (pp_regression_window){s->samples[0][j].stamp_ns, ORIGIN_NS + llround(start),
                                    ORIGIN_NS + llround(end), false};
        for (size_t k = 0; k < s->in.n_observed; k++)
            w->usable |=
                w->start_ns >= s->captures[k].start_ns && w->end_ns <= s->captures[k].end_ns;
    }
    return n;
}

void sim_free(sim *s)
{
    if (!s)
        return;
    run *r = s->run;
    free(r->pieces);
    free(r);
    free(s->items);
    free(s->names);
    free(s->intervals);
    free(s->cells);
    free(s->steps);
    free(s->captures);
    free(s->read_end);
    free(s->truth);
    free(s->realised);
    for (int m = 0; m < SIM_METRICS; m++)
        free(s->samples[m]);
    free(s);
}

static void layers_score(const sim *s, const pp_regression_result *r, const double *plain,
                         sim_score *ret)
{
    double weights = 0, step_share = 0;
    for (size_t i = 0; i < r->n_items; i++) {
        if (r->rows[i].phase > PP_PHASE_BACKWARD)
            continue;
        for (size_t m = 0; m < 5; m++) {
            const pp_regression_estimate *e = pp_regression_get(r, i, m);
            if (!e->identifiable)
                continue;
            double truth = s->realised[i * SIM_METRICS + m], share = r->rows[i].share;
            double error = (e->mean - truth) / scale[m] * 100;
            double z = (e->mean - truth) / e->standard_error;
            ret->error += share * fabs(error);
            ret->bias += share * error;
            if (plain)
                ret->plain += share * fabs(plain[i * r->n_metrics + m] - truth) / scale[m] * 100;
            ret->z2 += z * z;
            ret->within3 += fabs(z) <= 3;
            ret->beyond5 += fabs(z) > 5;
            ret->worst = fmax(ret->worst, fabs(error));
            ret->n++;
            weights += share;
            step_share += share / 5;
        }
    }
    ret->reported = step_share;
    if (weights > 0) {
        ret->error /= weights;
        ret->bias /= weights;
        ret->plain /= weights;
    }
}

double sim_metric_error(const sim *s, const pp_regression_result *r, size_t metric)
{
    double sum = 0, weights = 0;
    for (size_t i = 0; i < r->n_items; i++) {
        const pp_regression_estimate *e = pp_regression_get(r, i, metric);
        if (r->rows[i].phase > PP_PHASE_BACKWARD || !e->identifiable)
            continue;
        const double truth = s->realised[i * SIM_METRICS + metric];
        sum += r->rows[i].share * fabs(e->mean - truth) / scale[metric] * 100;
        weights += r->rows[i].share;
    }
    return weights > 0 ? sum / weights : (double)NAN;
}

static void groups_score(const sim *s, const pp_regression_result *r, sim_score *ret)
{
    for (size_t g = 0; g < r->n_groups; g++) {
        const pp_regression_group *v = &r->groups[g];
        if (v->metric >= 5)
            continue;
        double sum = 0, time = 0;
        for (size_t i = 0; i < v->n_members; i++) {
            double t = (double)r->rows[v->members[i]].time_ns;
            sum += t * s->realised[v->members[i] * SIM_METRICS + v->metric];
            time += t;
        }
        double z = (v->estimate.mean - sum / time) / v->estimate.standard_error;
        ret->group_z2 += z * z;
        ret->groups++;
    }
}

/* Windows are in order of time, and each has the stamp of a sample. */
static void readings_score(const sim *s, const pp_regression_result *r, sim_score *ret)
{
    size_t j = 0;
    for (size_t w = 0; w < r->n_windows; w++) {
        while (j + 1 < s->metrics[0].n_samples &&
               s->samples[0][j].stamp_ns < r->windows[w].stamp_ns)
            j++;
        const double off = (double)(r->windows[w].end_ns - ORIGIN_NS) - s->read_end[j];
        ret->misread += fabs(off) > 0.5e9 * s->config.window;
        ret->windows++;
    }
}

void sim_score_of(const sim *s, const pp_regression_result *r, sim_score *ret)
{
    pp_peers peers;
    *ret = (sim_score){.end_error = (double)NAN};
    if (pp_peers_solve(&s->in, r->windows, r->n_windows, &peers, NULL) < 0)
        abort();
    layers_score(s, r, peers.overlap, ret);
    pp_peers_done(&peers);
    groups_score(s, r, ret);
    for (size_t m = 0; m < SIM_METRICS; m++) {
        if (s->job[m] == 0) /* where no item has it */
            continue;
        double e = fabs(r->fits[m].job.mean / s->job[m] - 1);
        ret->job_error = e > ret->job_error ? e : ret->job_error;
    }
    if (!r->lag_known || r->n_windows == 0)
        return;
    readings_score(s, r, ret);
    double w = s->config.window * 1e9;
    const pp_regression_window *middle = &r->windows[r->n_windows / 2];
    double at = fmod((double)(middle->end_ns - ORIGIN_NS) - s->first_end, w);
    at += at < 0 ? w : 0;
    ret->end_error = (at > w / 2 ? at - w : at) / 1e6;
}
