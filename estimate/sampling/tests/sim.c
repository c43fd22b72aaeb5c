#include "estimate/sampling/tests/sim.h"
#include "common/tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES = SIM_BUSY, HELD_BACK = 64 };

/* One kernel of the model; times in us. */
typedef struct kernel {
    uint32_t layer;
    uint8_t phase;
    uint64_t like;
    double length, gap;
    double rise, fall; /* at its begin and end */
    double level[SHARES];
    double now[SHARES]; /* in this capture */
    double clock;       /* of the SMs while it runs, over PP_SAMPLING_RATED_GHZ */
} kernel;

/* One that ran. */
typedef struct ran {
    double start, length;
    double level[SHARES];
    const kernel *of;
    bool fill;
} ran;

typedef struct model {
    uint64_t rng;
    kernel *kernels;
    kernel fill;
    int n;
    ran *ran;
    int n_ran;
    int *order;
    int *names; /* of the step: whose layer and phase each kernel is told to be of */
    pp_sampling_result *known;
    double now;   /* us */
    double begun; /* us: when the capture did */
    bool last;    /* this capture */
    double lead;  /* of the time in which nothing runs, the share before it does */
    int64_t step;
    double lag_squares;
    double stamps_off; /* us: the likely lag less the true one */
} model;

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

sim_config sim_usual(uint64_t seed)
{
    return (sim_config){.seed = seed,
                        .spread = 0.9,
                        .gap = {0.7, 1.2},
                        .period = 25,
                        .capture = 0.5,
                        .captures = 10,
                        .cv = 0.05,
                        .noise = 0.002,
                        .dead = 1.2,
                        .stamps = 0.1,
                        .lag = -700,
                        .drift = 5e-6};
}

/* ---- the model ---- */

static void draw_kernel(model *m, const sim_config *c, kernel *k)
{
    k->length = fmax(1.5, fmin(2000, c->length * exp(c->spread * sim_normal(&m->rng))));
    k->gap = c->gap[0] + (c->gap[1] - c->gap[0]) * sim_uniform(&m->rng);
    k->rise = fmin(k->length / 4, 0.3 + 1.2 * sim_uniform(&m->rng));
    k->fall = c->tail > 0 ? k->length * c->tail * sim_uniform(&m->rng)
                          : fmin(30, k->length * 0.5 * sim_uniform(&m->rng));
    for (int i = 0; i < SHARES; i++)
        k->level[i] = 0.03 + 0.82 * sim_uniform(&m->rng);
    k->clock = c->slower > 0 ? 1 - c->slower * sim_uniform(&m->rng) : 1;
}

/* A network's layers are alike: their kernels are the same, with other data. */
static void repeat_kernel(model *m, const sim_config *c, int i)
{
    const int first = i % c->alike;
    kernel *k = &m->kernels[i];
    if (i >= c->alike && c->unlike < 1) {
        const kernel *of = &m->kernels[first];
        *k = *of;
        k->length *= exp(0.03 * sim_normal(&m->rng));
        for (int j = 0; j < SHARES; j++)
            k->level[j] = fmax(0, fmin(1, of->level[j] + c->unlike * sim_normal(&m->rng)));
    } else if (i >= c->alike) {
        const double shorter = m->kernels[first].length / k->length;
        k->length *= shorter;
        k->rise *= shorter;
        k->fall *= shorter;
    }
    k->like = (uint64_t)first + 1;
}

static bool is_cleared(const sim_config *c, int i)
{
    return c->cleared > 0 && c->alike > 0 && i % c->alike >= c->alike - c->cleared;
}

/* Layers forward one after the other, backward the other way round, then the optimizer. */
static void draw_model(model *m, const sim_config *c)
{
    int layers = c->kernels / 5;
    m->n = c->kernels;
    m->kernels = need(calloc((size_t)m->n, sizeof *m->kernels));
    m->fill = (kernel){
        .length = c->fill, .rise = 0.5, .fall = 1, .level = {0.45, 0.37, 0.41}, .clock = 1};
    m->ran = need(calloc((size_t)m->n * 2, sizeof *m->ran));
    m->order = need(calloc((size_t)m->n, sizeof *m->order));
    m->names = need(calloc((size_t)m->n, sizeof *m->names));
    for (int i = 0; i < m->n; i++) {
        kernel *k = &m->kernels[i];
        draw_kernel(m, c, k);
        if (c->alike)
            repeat_kernel(m, c, i);
        if (is_cleared(c, i))
            k->gap = c->clearing;
        m->order[i] = m->names[i] = i;
        if (i < layers * 2) {
            k->layer = 1 + (uint32_t)i / 2;
        } else if (i < layers * 4) {
            k->layer = (uint32_t)(layers - (i - 2 * layers) / 2);
            k->phase = 1;
        } else {
            k->phase = i % 3 ? 2 : 7;
        }
    }
}

/* ---- a step ---- */

static double gap_of(model *m, const sim_config *c, const kernel *k)
{
    double steady = c->gap[1] < 3;
    double gap =
        k->gap * (steady > 0 ? 0.9 + 0.2 * sim_uniform(&m->rng) : 0.6 + sim_uniform(&m->rng));
    if (steady <= 0 && sim_uniform(&m->rng) < 0.002)
        gap += -500 * log(1 - sim_uniform(&m->rng)); /* the host was elsewhere */
    return gap;
}

static void deal_names(model *m)
{
    for (int i = m->n - 1; i > 0; i--) {
        const int k = (int)(sim_uniform(&m->rng) * (i + 1)), other = m->names[k];
        m->names[k] = m->names[i];
        m->names[i] = other;
    }
}

static double run_fill(model *m, const sim_config *c, double start)
{
    ran *r = &m->ran[m->n_ran++];
    *r = (ran){.start = start, .length = c->fill, .of = &m->fill, .fill = true};
    memcpy(r->level, m->fill.level, sizeof r->level);
    return r->start + r->length;
}

static void run_step(model *m, const sim_config *c)
{
    if (c->dealt)
        deal_names(m);
    int half = m->n / 5 * 2;
    bool turned = c->shuffled && m->step % 4 == 3;
    const int n = m->n - (m->last ? 0 : c->late);
    m->n_ran = 0;
    for (int i = 0; i < n; i++) {
        int at = turned && i < half ? (i + half / 2) % half : i;
        const kernel *k = &m->kernels[m->order[at]];
        const double length = k->length * exp(0.02 * sim_normal(&m->rng));
        m->now += gap_of(m, c, k);
        if (is_cleared(c, i))
            (void)run_fill(m, c, m->now - 0.5 - c->fill);
        ran *r = &m->ran[m->n_ran++];
        *r = (ran){.of = k, .length = length};
        r->start = m->now;
        bool beside = c->parallel && i % c->parallel == 0;
        m->now += beside ? r->length / 3 : r->length;
        for (int j = 0; j < SHARES; j++)
            r->level[j] = k->now[j] * (beside ? 0.4 : 1) * fmax(0, 1 + c->cv * sim_normal(&m->rng));
        if (c->fills && i % c->fills == 0)
            m->now = run_fill(m, c, m->now + 2);
    }
    m->now += c->pause;
}

/* us of a kernel that are in its record and in which nothing of it runs. */
static double dead(const sim *s, const ran *r)
{
    return fmin(s->config.dead, r->length / 2);
}

/* The area below a kernel's course at level 1 up to `t` us after its begin. */
static double area(const sim *s, const ran *r, double t)
{
    const model *m = s->model;
    const kernel *k = r->of;
    double rise = k->rise, fall = k->fall, n = r->length - dead(s, r);
    t -= m->lead * dead(s, r);
    t = fmax(0, fmin(t, n));
    double a = t < rise ? t * t / (2 * rise) : rise / 2 + (t - rise);
    double into = t - (n - fall);
    return into > 0 && fall > 0 ? a - into * into / (2 * fall) : a;
}

/* ---- a capture ---- */

typedef struct windows {
    double first; /* us, its begin */
    size_t n;
    pp_sampling_sample *samples;
    double (*sums)[PP_SAMPLING_METRICS];
} windows;

/* What is counted in the SMs' cycles comes by these; memory has its own. */
static double clock_for(int metric, const kernel *k)
{
    return pp_sampling_is_of_cycles(metric) ? k->clock : 1;
}

/* `next`: us, where the next kernel begins. */
static void add_to_windows(windows *w, const sim *s, const ran *r, double next)
{
    const sim_config *c = &s->config;
    const model *m = s->model;
    double busy = r->start + m->lead * dead(s, r), idle = busy + r->length - dead(s, r);
    double end = r->start + r->length;
    double slow_till = fmax(end, fmin(idle + c->recovers, next));
    for (long i = (long)floor((r->start - w->first) / c->period);; i++) {
        double from = w->first + (double)i * c->period;
        if (from >= slow_till)
            return;
        if (i < 0 || (size_t)i >= w->n)
            continue;
        double till = from + c->period;
        double covered = fmax(0, fmin(idle, till) - fmax(busy, from));
        double slow = fmax(0, fmin(c->recovers > 0 ? slow_till : idle, till) - fmax(busy, from));
        double part = area(s, r, till - r->start) - area(s, r, from - r->start);
        for (int j = 0; j < SHARES; j++)
            w->sums[i][j] += part * r->level[j] * clock_for(j, r->of) / c->period;
        w->sums[i][SIM_BUSY] +=
            covered / c->period * (r->fill ? m->fill.level[0] : 1) * clock_for(SIM_BUSY, r->of);
        w->sums[i][PP_SAMPLING_CLOCK] += slow / c->period * (r->of->clock - 1);
    }
}

/* Of the timer that both clocks tell, where they do; ns. */
static double ticks(const sim_config *c, double us)
{
    return c->rate == 0 ? us * 1000 : 32 * round(us * 1000 / 32);
}

/* A time on the kernels' clock, ns. */
static int64_t on_kernels_clock(const model *m, const sim_config *c, double us)
{
    const double ns = ticks(c, us);
    return (int64_t)llround(ns + c->rate * (ns - 1000 * m->begun));
}

static int64_t stamp(model *m, const sim_config *c, double us)
{
    return on_kernels_clock(m, c, us + c->stamps * sim_normal(&m->rng));
}

static void tell_one(model *m, const sim_config *c, pp_sampling *f, const ran *r)
{
    const kernel *named = r->fill ? r->of : &m->kernels[m->names[r->of - m->kernels]];
    pp_sampling_kernel k = {.start = stamp(m, c, r->start),
                            .step = m->step,
                            .layer = named->layer,
                            .phase = named->phase,
                            .like = named->like,
                            .work = r->fill ? PP_SAMPLING_FILL : PP_SAMPLING_KERNEL};
    k.end = stamp(m, c, r->start + r->length);
    if (k.end <= k.start)
        k.end = k.start + 1;
    if (!(r->fill && c->untold) && pp_sampling_add_kernel(f, &k, NULL) < 0)
        abort();
}

/* Of a copy engine's: no metric of the SMs sees it. */
static void tell_copy(const model *m, const sim_config *c, pp_sampling *f, const ran *r)
{
    const int64_t start = on_kernels_clock(m, c, r->start + r->length / 2);
    const pp_sampling_kernel k = {
        .start = start, .end = start + 300000, .step = m->step, .work = PP_SAMPLING_COPY_ACROSS};
    if (pp_sampling_add_kernel(f, &k, NULL) < 0)
        abort();
}

static void tell_kernels(sim *s, pp_sampling *f, windows *w)
{
    model *m = s->model;
    for (int i = 0; i < m->n_ran; i++) {
        tell_one(m, &s->config, f, &m->ran[i]);
        if (s->config.engine && i % s->config.engine == 0)
            tell_copy(m, &s->config, f, &m->ran[i]);
        add_to_windows(w, s, &m->ran[i], i + 1 < m->n_ran ? m->ran[i + 1].start : (double)INFINITY);
    }
}

/* A time of the kernels' clock on the samples', ns. */
static int64_t on_samples_clock(const sim_config *c, double us, double zero)
{
    const double ns = ticks(c, us);
    return (int64_t)llround(ns + 1000 * c->lag + c->drift * (ns - 1000 * zero));
}

static void tell_samples(sim *s, pp_sampling *f, const windows *w)
{
    model *m = s->model;
    const sim_config *c = &s->config;
    for (size_t i = 0; i < w->n; i++) {
        double from = w->first + (double)i * c->period;
        pp_sampling_sample p = {.start = on_samples_clock(c, from, w->first),
                                .end = on_samples_clock(c, from + c->period, w->first)};
        const double clock = 1 + w->sums[i][PP_SAMPLING_CLOCK];
        for (int j = 0; j < PP_SAMPLING_CLOCK; j++) {
            const double of_cycles = pp_sampling_is_of_cycles(j) ? clock : 1;
            p.values[j] = (float)fmin(1, w->sums[i][j] / of_cycles + (j < SHARES ? c->tenant : 0) +
                                             c->noise * sim_normal(&m->rng));
        }
        p.values[PP_SAMPLING_CLOCK] =
            c->clockless ? NAN
                         : (float)(PP_SAMPLING_RATED_GHZ *
                                   (clock + (c->slower > 0 ? 0.001 * sim_normal(&m->rng) : 0)));
        bool blank = c->missing && (c->blank == 0 || s->n_captures <= (size_t)c->blank);
        if (blank && sim_uniform(&m->rng) >= c->rare)
            p.values[c->missing - 1] = NAN;
        if (sim_uniform(&m->rng) >= c->lost && pp_sampling_add_sample(f, &p, NULL) < 0)
            abort();
    }
}

/* As the agent solves, from capture to capture. */
static void solve_again(sim *s)
{
    model *m = s->model;
    pp_error err = {0};
    pp_sampling_result_free(m->known);
    m->known = NULL;
    if (pp_sampling_solve((const pp_sampling_sums *const *)s->captures, s->n_captures, &m->known,
                          &err) < 0)
        abort();
}

/* What captures differ by. */
static double differs(model *m, double by)
{
    return by > 0 ? fmax(0, 1 + by * sim_normal(&m->rng)) : 1;
}

static void draw_capture(model *m, const sim_config *c)
{
    double all[SHARES];
    for (int j = 0; j < SHARES; j++)
        all[j] = differs(m, c->clocks);
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < SHARES; j++)
            m->kernels[i].now[j] = m->kernels[i].level[j] * all[j] * differs(m, c->between);
}

static bool run_capture(sim *s, pp_sampling *f, pp_sampling_sums **ret)
{
    model *m = s->model;
    const sim_config *c = &s->config;
    const double begun = m->begun = m->now;
    draw_capture(m, c);
    m->last = s->n_captures + 1 == (size_t)c->captures;
    windows w = {.first = begun + c->period * sim_uniform(&m->rng),
                 .n = (size_t)(c->capture * 1e6 / c->period)};
    w.sums = need(calloc(w.n, sizeof *w.sums));
    while (m->now < begun + c->capture * 1e6) {
        run_step(m, c);
        tell_kernels(s, f, &w);
        m->step++;
    }
    tell_samples(s, f, &w);
    free(w.sums);
    const pp_sampling_clock clock = {.metric = c->tail > 0 ? 0 : SIM_BUSY,
                                     .lag = (int64_t)(c->lag * 1000) + 600000,
                                     .range = 2000000,
                                     .likely = c->stamped > 0 || c->alike
                                                   ? (int64_t)((c->lag + m->stamps_off) * 1000)
                                                   : PP_SAMPLING_NOT_LIKELY,
                                     .stamped = c->by_stamps,
                                     .error = (int64_t)(c->wrong * 1000)};
    pp_error err = {0};
    m->now += 1e5;
    if (pp_sampling_join(f, &clock, m->known, ret, &err) < 0) {
        if (c->dealt || c->alike || c->wrong != 0)
            return false;
        (void)fprintf(stderr, "a capture is not joined: %s\n", err.message);
        abort();
    }
    double middle = c->lag + (c->drift - c->rate) * c->capture * 1e6 / 2;
    m->lag_squares += pow((double)(*ret)->lag / 1000 - middle, 2);
    return true;
}

/* ---- truth ---- */

static void add_truth(sim *s, const model *m, const kernel *k)
{
    sim_item *item = NULL;
    for (size_t i = 0; i < s->n_items; i++)
        if (s->items[i].layer == k->layer && s->items[i].phase == k->phase)
            item = &s->items[i];
    if (!item) {
        item = &s->items[s->n_items++];
        *item = (sim_item){.layer = k->layer, .phase = k->phase};
    }
    ran r = {.length = k->length, .of = k};
    bool beside = s->config.parallel && (k - m->kernels) % s->config.parallel == 0;
    for (int j = 0; j < SHARES; j++)
        item->mean[j] += area(s, &r, k->length) * k->level[j] * (beside ? 0.4 : 1);
    const double slow = (1 - k->clock) * (k->length - dead(s, &r));
    item->mean[PP_SAMPLING_CLOCK] += PP_SAMPLING_RATED_GHZ * (k->length - slow);
    item->time += k->length;
    item->kernel += 1;
}

static void find_truth(sim *s)
{
    const model *m = s->model;
    s->items = need(calloc((size_t)m->n, sizeof *s->items));
    for (int i = 0; i < m->n; i++)
        add_truth(s, m, &m->kernels[i]);
    for (size_t i = 0; i < s->n_items; i++) {
        for (int j = 0; j < SHARES; j++)
            s->items[i].mean[j] /= s->items[i].time;
        s->items[i].mean[PP_SAMPLING_CLOCK] /= s->items[i].time;
        s->items[i].kernel = s->items[i].time / s->items[i].kernel;
    }
}

void sim_run(sim *s, const sim_config *config)
{
    model *m = need(calloc(1, sizeof *m));
    *s = (sim){.config = *config, .model = m};
    m->rng = config->seed * 7919;
    m->now = 1e6;
    draw_model(m, config);
    m->lead = config->dead > 0 ? sim_uniform(&m->rng) : 0;
    uint64_t apart = config->seed * 104729; /* what else is drawn stays the same with it */
    m->stamps_off = config->stamped * sim_normal(&apart);
    find_truth(s);
    s->captures = need(calloc((size_t)config->captures, sizeof(pp_sampling_sums *)));
    pp_sampling *f = need(pp_sampling_new((int64_t)(config->period * 1000)));
    for (int i = 0; i < config->captures; i++)
        if (run_capture(s, f, &s->captures[s->n_captures])) {
            s->n_captures++;
            if (config->judged)
                solve_again(s);
        }
    pp_sampling_free(f);
    s->lag_error = sqrt(m->lag_squares / config->captures);
}

void sim_free(sim *s)
{
    model *m = s->model;
    for (size_t i = 0; i < s->n_captures; i++)
        pp_sampling_sums_free(s->captures[i]);
    free(s->captures);
    free(s->items);
    free(m->kernels);
    free(m->ran);
    free(m->order);
    free(m->names);
    pp_sampling_result_free(m->known);
    free(m);
}

/* ---- comparison ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static const pp_sampling_item *find_item(const pp_sampling_result *r, const sim_item *t)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->items[i].layer == t->layer && r->items[i].phase == t->phase)
            return &r->items[i];
    return NULL;
}

sim_score sim_compare(const sim *s, const pp_sampling_result *result, double from, double to)
{
    sim_score score = {0};
    double weight = 0;
    double *errors = need(calloc(s->n_items * SHARES + 1, sizeof *errors));
    for (size_t i = 0; i < s->n_items; i++) {
        const sim_item *t = &s->items[i];
        const pp_sampling_item *e = find_item(result, t);
        if (t->kernel < from || t->kernel >= to)
            continue;
        for (int j = 0; j < SHARES; j++) {
            double off = e ? 100 * fabs(e->mean[j] - t->mean[j]) : 100;
            double z = e ? off / 100 / e->stderr_of[j] : 100;
            errors[score.n++] = off;
            score.error += t->time * off;
            weight += t->time;
            score.within += z < 2;
            score.z += z * z;
        }
    }
    qsort(errors, score.n, sizeof *errors, compare_doubles);
    if (score.n) {
        score.p95 = errors[score.n * 95 / 100];
        score.error /= weight;
        score.within /= (double)score.n;
        score.z = sqrt(score.z / (double)score.n);
    }
    free(errors);
    return score;
}
