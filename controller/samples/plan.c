#include "controller/samples/plan.h"

#include "common/cleanup.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)

enum {
    MAX_TEXT = 256 * 1024, /* bytes of one query */
    MAX_HALVINGS = 8,
};

/* What is known of one GPU. */
typedef struct gpu {
    char uuid[PP_PLAN_MAX_UUID + 1];
    int64_t from, to;                /* the observed time */
    int64_t stored[PP_METRIC_COUNT]; /* newest stamp; 0: none */
    int64_t settled;                 /* all that exists up to here was asked for and answered */
    int64_t due;                     /* not asked before */
    int64_t failing_since;           /* first failure since the last answer; 0: none */
    int64_t failed_at;               /* the last one */
    unsigned failures;
    unsigned partials; /* answers since the last whole one */
    uint64_t busy;     /* the query that is under way; 0: none */
    bool outrun;       /* more was needed since it was sent: its answer does not count */
} gpu;

struct pp_plan {
    pp_metric_source source;
    unsigned seen; /* metrics of which a GPU had a sample */
    pp_plan_options opt;
    gpu **gpus; /* ordered by UUID */
    size_t n_gpus;
    unsigned halvings; /* of the size of queries, since answers were too large */
    uint64_t next_id;
    struct flight { /* queries under way */
        uint64_t id;
        int64_t end, sent;
        unsigned halvings; /* when it was sent */
    } * flights;
    size_t n_flights;
};

static void set_default(int64_t *value, int64_t to)
{
    if (*value <= 0)
        *value = to;
}

pp_plan *pp_plan_new(const pp_metric_source *source, const pp_plan_options *opt)
{
    pp_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->source = *source;
    plan->opt = *opt;
    plan->next_id = 1;
    pp_plan_options *o = &plan->opt;
    o->metrics = o->metrics ? o->metrics : PP_METRIC_ALL;
    set_default(&o->interval_ns, 5 * SECOND);
    set_default(&o->scrape_ns, SECOND);
    set_default(&o->lead_ns, 15 * SECOND);
    set_default(&o->lag_ns, PP_PLAN_LAG);
    set_default(&o->settle_ns, PP_PLAN_SETTLE);
    set_default(&o->backoff_max_ns, 60 * SECOND);
    set_default(&o->range_max_ns, 900 * SECOND);
    set_default(&o->samples_max, 40000);
    return plan;
}

pp_plan *pp_plan_free(pp_plan *plan)
{
    if (!plan)
        return NULL;
    for (size_t i = 0; i < plan->n_gpus; i++)
        free(plan->gpus[i]);
    free(plan->gpus);
    free(plan->flights);
    free(plan);
    return NULL;
}

/* Where the UUID stands, or would stand; true when it is there. */
static bool find(const pp_plan *plan, const char *uuid, size_t *ret)
{
    size_t low = 0, high = plan->n_gpus;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(plan->gpus[middle]->uuid, uuid);
        if (order == 0) {
            *ret = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret = low;
    return false;
}

static int check_uuid(const char *uuid, pp_error *err)
{
    size_t n = strlen(uuid);
    if (n == 0 || n > PP_PLAN_MAX_UUID)
        return pp_error_field(err, "gpu", "a GPU's UUID must have 1 to %d bytes", PP_PLAN_MAX_UUID);
    for (size_t i = 0; i < n; i++) {
        if (uuid[i] <= ' ' || uuid[i] > '~')
            return pp_error_field(err, "gpu", "a GPU's UUID must be printable ASCII");
    }
    return 0;
}

static gpu *insert(pp_plan *plan, const char *uuid, size_t at, pp_error *err)
{
    if (plan->n_gpus == PP_PLAN_MAX_GPUS) {
        (void)pp_error_set(err, PP_ERR_TOO_LARGE, "more than %d GPUs", PP_PLAN_MAX_GPUS);
        return NULL;
    }
    gpu **grown = realloc(plan->gpus, (plan->n_gpus + 1) * sizeof(gpu *));
    if (grown)
        plan->gpus = grown;
    gpu *g = grown ? calloc(1, sizeof *g) : NULL;
    if (!g) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    memcpy(g->uuid, uuid, strlen(uuid) + 1);
    memmove(&plan->gpus[at + 1], &plan->gpus[at], (plan->n_gpus - at) * sizeof(gpu *));
    plan->gpus[at] = g;
    plan->n_gpus++;
    return g;
}

/* Time before what was asked for so far makes the answers so far insufficient. */
static void extend_back(const pp_plan *plan, gpu *g, int64_t from)
{
    g->from = from;
    g->settled = from - plan->opt.lead_ns;
    memset(g->stored, 0, sizeof g->stored);
    g->due = 0;
    g->outrun = g->busy != 0;
}

int pp_plan_need(pp_plan *plan, const char *uuid, int64_t from_ns, int64_t to_ns, pp_error *err)
{
    if (check_uuid(uuid, err) < 0)
        return -1;
    if (to_ns < from_ns)
        return pp_error_field(err, "to", "the range ends before it begins");
    size_t at;
    gpu *g = find(plan, uuid, &at) ? plan->gpus[at] : NULL;
    if (!g) {
        g = insert(plan, uuid, at, err);
        if (!g)
            return -1;
        g->to = to_ns;
        extend_back(plan, g, from_ns);
        return 0;
    }
    if (from_ns < g->from)
        extend_back(plan, g, from_ns);
    if (to_ns > g->to)
        g->to = to_ns;
    return 0;
}

void pp_plan_again(pp_plan *plan)
{
    for (size_t i = 0; i < plan->n_gpus; i++)
        extend_back(plan, plan->gpus[i], plan->gpus[i]->from);
}

void pp_plan_stored(pp_plan *plan, const char *uuid, pp_metric metric, int64_t stamp_ns)
{
    size_t at;
    if (find(plan, uuid, &at) && stamp_ns > plan->gpus[at]->stored[metric]) {
        plan->gpus[at]->stored[metric] = stamp_ns;
        plan->seen |= 1U << metric;
    }
}

static bool wanted(const pp_plan *plan, int metric)
{
    return (plan->opt.metrics & (1U << metric)) && plan->source.series[metric].name[0];
}

/* Whether it is waited for: one that exporters need not have is once it has come. */
static bool awaited(const pp_plan *plan, const gpu *g, int metric)
{
    const bool expected = pp_metric_expected(plan->opt.metrics) & (1U << metric);
    return wanted(plan, metric) && (expected || g->stored[metric]);
}

static int64_t end_of(const pp_plan *plan, const gpu *g)
{
    return g->to + plan->opt.lag_ns;
}

/* Up to where each metric is either stored or known not to exist. */
static int64_t covered(const pp_plan *plan, const gpu *g)
{
    int64_t least = INT64_MAX;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (!awaited(plan, g, m))
            continue;
        int64_t until = g->stored[m] > g->settled ? g->stored[m] : g->settled;
        if (until < least)
            least = until;
    }
    return least;
}

static bool done(const pp_plan *plan, const gpu *g)
{
    return covered(plan, g) >= end_of(plan, g);
}

/* When it is asked for the last time where it does not answer: it was waited for, and all that is
 * awaited should be there. */
static int64_t last_try(const pp_plan *plan, const gpu *g)
{
    int64_t waited = g->failing_since + plan->opt.wait_ns;
    int64_t there = end_of(plan, g) + plan->opt.settle_ns;
    return waited > there ? waited : there;
}

static bool given_up(const pp_plan *plan, const gpu *g)
{
    return g->failing_since && !done(plan, g) && g->failed_at >= last_try(plan, g);
}

static bool askable(const pp_plan *plan, const gpu *g, int64_t now_ns)
{
    return !g->busy && g->due <= now_ns && covered(plan, g) < now_ns && !done(plan, g) &&
           !given_up(plan, g);
}

/* The longest range whose answer about n GPUs stays within the expected number of samples. */
static int64_t longest_range(const pp_plan *plan, size_t n_gpus)
{
    const unsigned expected = pp_metric_expected(plan->opt.metrics);
    int64_t series = 0;
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        series += wanted(plan, m) && ((expected | plan->seen) & (1U << m));
    series *= (int64_t)n_gpus;
    int64_t scrapes = (plan->opt.samples_max >> plan->halvings) / (series > 0 ? series : 1);
    int64_t floor = 10 * plan->opt.scrape_ns;
    if (scrapes > plan->opt.range_max_ns / plan->opt.scrape_ns)
        return plan->opt.range_max_ns;
    return scrapes * plan->opt.scrape_ns > floor ? scrapes * plan->opt.scrape_ns : floor;
}

/* GPUs to ask about in one query, and what it covers. */
typedef struct batch {
    gpu *gpus[PP_PLAN_MAX_QUERY_GPUS];
    size_t n;
    int64_t start, end;
} batch;

/* The GPU that lacks the oldest samples. */
static gpu *most_behind(pp_plan *plan, int64_t now_ns)
{
    gpu *best = NULL;
    for (size_t i = 0; i < plan->n_gpus; i++) {
        gpu *g = plan->gpus[i];
        if (askable(plan, g, now_ns) && (!best || covered(plan, g) < covered(plan, best)))
            best = g;
    }
    return best;
}

/* Others are asked about together with it where most of their range is the same. */
static bool fits(const pp_plan *plan, const batch *b, const gpu *g)
{
    return b->n < (size_t)PP_PLAN_MAX_QUERY_GPUS >> plan->halvings &&
           covered(plan, g) - b->start <= longest_range(plan, b->n + 1) / 2;
}

static bool gather(pp_plan *plan, int64_t now_ns, uint64_t id, batch *b)
{
    gpu *first = most_behind(plan, now_ns);
    if (!first)
        return false;
    *b = (batch){.start = covered(plan, first), .end = INT64_MIN};
    for (size_t i = 0; i < plan->n_gpus; i++) {
        gpu *g = plan->gpus[i];
        if (!askable(plan, g, now_ns) || (g != first && !fits(plan, b, g)))
            continue;
        g->busy = id;
        b->gpus[b->n++] = g;
        if (end_of(plan, g) > b->end)
            b->end = end_of(plan, g);
    }
    int64_t longest = b->start + longest_range(plan, b->n);
    if (b->end > longest)
        b->end = longest;
    if (b->end > now_ns)
        b->end = now_ns;
    return true;
}

int pp_plan_quote(const char *text, pp_buf *out, pp_error *err)
{
    for (const char *c = text; *c; c++) {
        char quoted[4] = {*c};
        size_t n = 1;
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return pp_error_field(err, "label", "must not hold control characters");
        if (*c == '\\') { /* an escape in the expression, each half escaped in the string */
            memcpy(quoted, "\\\\\\\\", 4);
            n = 4;
        } else if (*c == '"') {
            quoted[0] = '\\';
            quoted[1] = '"';
            n = 2;
        } else if (strchr(".+*?()|[]{}^$", *c)) {
            quoted[0] = quoted[1] = '\\';
            quoted[2] = *c;
            n = 3;
        }
        if (pp_buf_append(out, quoted, n, err) < 0)
            return -1;
    }
    return 0;
}

static int write_names(const pp_plan *plan, pp_buf *out, pp_error *err)
{
    bool first = true;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (!wanted(plan, m))
            continue;
        if ((!first && pp_buf_append(out, "|", 1, err) < 0) ||
            pp_plan_quote(plan->source.series[m].name, out, err) < 0)
            return -1;
        first = false;
    }
    return 0;
}

static int write_uuids(const batch *b, pp_buf *out, pp_error *err)
{
    for (size_t i = 0; i < b->n; i++) {
        if ((i > 0 && pp_buf_append(out, "|", 1, err) < 0) ||
            pp_plan_quote(b->gpus[i]->uuid, out, err) < 0)
            return -1;
    }
    return 0;
}

static int write_query(const pp_plan *plan, const batch *b, pp_plan_query *ret, pp_error *err)
{
    pp_buf text;
    pp_buf_init(&text, MAX_TEXT);
    /* Whole milliseconds, and one more before: the range's beginning is not part of it. */
    int64_t end_ms = (b->end + MILLISECOND - 1) / MILLISECOND;
    int64_t range_ms = end_ms - b->start / MILLISECOND + 1;
    if (pp_buf_printf(&text, err, "{__name__=~\"") < 0 || write_names(plan, &text, err) < 0 ||
        pp_buf_printf(&text, err, "\",%s=~\"", plan->source.uuid_label) < 0 ||
        write_uuids(b, &text, err) < 0 ||
        pp_buf_printf(&text, err, "\"}[%" PRId64 "ms]", range_ms) < 0) {
        pp_buf_done(&text);
        return -1;
    }
    ret->text = pp_buf_take(&text);
    ret->time_ns = end_ms * MILLISECOND;
    ret->range_ns = range_ms * MILLISECOND;
    ret->n_gpus = b->n;
    return 0;
}

static int remember(pp_plan *plan, struct flight flight, pp_error *err)
{
    struct flight *grown = realloc(plan->flights, (plan->n_flights + 1) * sizeof *grown);
    if (!grown)
        return pp_error_nomem(err);
    plan->flights = grown;
    grown[plan->n_flights++] = flight;
    return 0;
}

static int next_query(pp_plan *plan, const batch *b, struct flight flight, pp_plan_queries *ret,
                      pp_error *err)
{
    pp_plan_query *query = &ret->items[ret->count];
    *query = (pp_plan_query){.id = flight.id};
    if (write_query(plan, b, query, err) < 0 || remember(plan, flight, err) < 0) {
        free(query->text);
        for (size_t i = 0; i < b->n; i++)
            b->gpus[i]->busy = 0;
        return -1;
    }
    ret->count++;
    return 0;
}

int pp_plan_next(pp_plan *plan, int64_t now_ns, pp_plan_queries *ret, pp_error *err)
{
    batch b;
    ret->count = 0;
    while (ret->count < PP_PLAN_MAX_QUERIES && gather(plan, now_ns, plan->next_id, &b)) {
        struct flight flight = {
            .id = plan->next_id++, .end = b.end, .sent = now_ns, .halvings = plan->halvings};
        if (next_query(plan, &b, flight, ret, err) < 0) {
            for (size_t i = 0; i < ret->count; i++)
                pp_plan_answered(plan, ret->items[i].id, now_ns, false);
            pp_plan_queries_done(ret);
            return -1;
        }
    }
    return 0;
}

void pp_plan_queries_done(pp_plan_queries *queries)
{
    for (size_t i = 0; i < queries->count; i++)
        free(queries->items[i].text);
    queries->count = 0;
}

/* Until one that was answered in part is asked about again: all that is younger than the wait,
 * which is much. No later than when that has passed for the last of it. */
static int64_t due_after_partial(const pp_plan *plan, const gpu *g, int64_t now_ns)
{
    const int64_t most = plan->opt.wait_ns / 4, end = end_of(plan, g) + plan->opt.wait_ns;
    int64_t pause = plan->opt.interval_ns;
    for (unsigned i = 1; i < g->partials && pause < most; i++)
        pause *= 2;
    pause = pause > most && most > plan->opt.interval_ns ? most : pause;
    return end > now_ns && end < now_ns + pause ? end : now_ns + pause;
}

static void answered(const pp_plan *plan, gpu *g, const struct flight *flight, int64_t now_ns,
                     bool partial)
{
    bool longer = partial && plan->opt.wait_ns > plan->opt.settle_ns;
    int64_t sure = flight->sent - (longer ? plan->opt.wait_ns : plan->opt.settle_ns);
    int64_t settled = sure < flight->end ? sure : flight->end;
    if (settled > g->settled)
        g->settled = settled;
    g->failures = 0;
    g->failing_since = 0;
    /* A range that was cut short is continued at once; else new samples are waited for. */
    bool more = flight->end <= sure && flight->end < end_of(plan, g);
    g->partials = partial ? g->partials + (g->partials < UINT_MAX) : 0;
    g->due = more      ? now_ns
             : partial ? due_after_partial(plan, g, now_ns)
                       : now_ns + plan->opt.interval_ns;
}

static void failed(const pp_plan *plan, gpu *g, int64_t now_ns)
{
    int64_t wait = SECOND << (g->failures < 20 ? g->failures : 20);
    if (wait > plan->opt.backoff_max_ns)
        wait = plan->opt.backoff_max_ns;
    g->failures++;
    if (!g->failing_since)
        g->failing_since = now_ns;
    g->failed_at = now_ns;
    g->due = now_ns + wait;
    int64_t last = last_try(plan, g);
    if (now_ns < last && g->due > last)
        g->due = last;
}

enum landing { FAILED, TOO_LARGE, PARTIAL, WHOLE };

static void land(pp_plan *plan, uint64_t id, int64_t now_ns, enum landing how)
{
    size_t f = 0;
    while (f < plan->n_flights && plan->flights[f].id != id)
        f++;
    if (f == plan->n_flights)
        return;
    struct flight flight = plan->flights[f];
    plan->flights[f] = plan->flights[--plan->n_flights];
    /* Of several that were sent together and are all too large, one halves. */
    if (how == TOO_LARGE && flight.halvings == plan->halvings && plan->halvings < MAX_HALVINGS)
        plan->halvings++;
    bool smaller = how == TOO_LARGE && flight.halvings < plan->halvings;
    for (size_t i = 0; i < plan->n_gpus; i++) {
        gpu *g = plan->gpus[i];
        if (g->busy != id)
            continue;
        g->busy = 0;
        if (g->outrun)
            extend_back(plan, g, g->from);
        else if (how >= PARTIAL)
            answered(plan, g, &flight, now_ns, how == PARTIAL);
        else if (smaller)
            g->due = now_ns; /* no failure: the next is another question */
        else
            failed(plan, g, now_ns);
    }
}

void pp_plan_answered(pp_plan *plan, uint64_t id, int64_t now_ns, bool ok)
{
    land(plan, id, now_ns, ok ? WHOLE : FAILED);
}

void pp_plan_too_large(pp_plan *plan, uint64_t id, int64_t now_ns)
{
    land(plan, id, now_ns, TOO_LARGE);
}

void pp_plan_partial(pp_plan *plan, uint64_t id, int64_t now_ns)
{
    land(plan, id, now_ns, PARTIAL);
}

int64_t pp_plan_due(const pp_plan *plan)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < plan->n_gpus; i++) {
        const gpu *g = plan->gpus[i];
        if (!g->busy && !done(plan, g) && g->due < due)
            due = g->due;
    }
    return due;
}

bool pp_plan_complete(const pp_plan *plan)
{
    for (size_t i = 0; i < plan->n_gpus; i++) {
        if (!done(plan, plan->gpus[i]) && !given_up(plan, plan->gpus[i]))
            return false;
    }
    return true;
}
