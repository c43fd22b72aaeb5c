#include "common/tests/cmocka_all.h"
#include "controller/samples/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define T0 (INT64_C(1769000000) * S)

static pp_plan *make(const pp_plan_options *opt)
{
    pp_metric_source dcgm;
    assert_int_equal(pp_metric_preset("dcgm", &dcgm, NULL), 0);
    pp_plan_options complete = *opt;
    complete.wait_ns = opt->wait_ns ? opt->wait_ns : 600 * S;
    pp_plan *plan = pp_plan_new(&dcgm, &complete);
    assert_non_null(plan);
    return plan;
}

/* A Prometheus that scrapes every second and shows a sample `delay` after its stamp. */
typedef struct prometheus {
    int64_t delay;
    int64_t scrape;
    unsigned metrics; /* that it has */
    int64_t last;     /* no sample after this */
    size_t queries;
    size_t samples;     /* answered, repeats included */
    int64_t first_got;  /* lowest stamp that was answered */
    size_t limit;       /* samples of one answer; 0: none */
    size_t refused;     /* queries whose answer would have had more */
    int64_t away_until; /* until then answers are partial, and hold nothing */
} prometheus;

/* The newest sample in (from, to] that is visible now; counts those answered. */
static int64_t newest(prometheus *p, int64_t from, int64_t to, int64_t now)
{
    int64_t until = to < now - p->delay ? to : now - p->delay;
    if (until > p->last)
        until = p->last;
    int64_t stamp = until / p->scrape * p->scrape;
    if (stamp <= from)
        return 0;
    int64_t first = (from / p->scrape + 1) * p->scrape;
    p->samples += (size_t)((stamp - first) / p->scrape + 1);
    if (!p->first_got || first < p->first_got)
        p->first_got = first;
    return stamp;
}

static void answer(prometheus *p, pp_plan *plan, const pp_plan_query *q, const char *const *gpus,
                   size_t n, int64_t now)
{
    p->queries++;
    if (p->limit &&
        q->n_gpus * (size_t)__builtin_popcount(p->metrics) * (size_t)(q->range_ns / p->scrape) >
            p->limit) {
        p->refused++;
        pp_plan_too_large(plan, q->id, now);
        return;
    }
    if (now < p->away_until) {
        pp_plan_partial(plan, q->id, now);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!strstr(q->text, gpus[i]))
            continue;
        for (int m = 0; m < PP_METRIC_COUNT; m++) {
            if (!(p->metrics & (1U << m)))
                continue;
            int64_t stamp = newest(p, q->time_ns - q->range_ns, q->time_ns, now);
            if (stamp)
                pp_plan_stored(plan, gpus[i], (pp_metric)m, stamp);
        }
    }
    pp_plan_answered(plan, q->id, now, true);
}

static void test_query_text(void **state)
{
    (void)state;
    pp_plan_options opt = {.metrics = 1U << PP_METRIC_GPU_UTIL | 1U << PP_METRIC_SM_ACTIVE};
    pp_plan *plan = make(&opt);
    assert_int_equal(pp_plan_need(plan, "GPU-b", T0, T0 + 10 * S, NULL), 0);
    assert_int_equal(pp_plan_need(plan, "GPU-a.1", T0, T0 + 10 * S, NULL), 0);
    pp_plan_queries q;
    assert_int_equal(pp_plan_next(plan, T0 + 12 * S, &q, NULL), 0);
    assert_int_equal(q.count, 1);
    assert_string_equal(q.items[0].text,
                        "{__name__=~\"DCGM_FI_PROF_SM_ACTIVE|DCGM_FI_DEV_GPU_UTIL\","
                        "UUID=~\"GPU-a\\\\.1|GPU-b\"}[27001ms]");
    assert_true(q.items[0].time_ns == T0 + 12 * S);
    assert_int_equal(q.items[0].n_gpus, 2);
    pp_plan_queries again;
    assert_int_equal(pp_plan_next(plan, T0 + 13 * S, &again, NULL), 0);
    assert_int_equal(again.count, 0); /* under way */
    pp_plan_answered(plan, q.items[0].id, T0 + 13 * S, true);
    pp_plan_answered(plan, 999, T0 + 13 * S, true);
    assert_true(pp_plan_due(plan) == T0 + 18 * S);
    pp_plan_queries_done(&q);
    (void)pp_plan_free(plan);
}

/* On another clock the answers so far mean something else: all of it is asked for again, and what
 * is under way counts for nothing. */
static void test_again(void **state)
{
    (void)state;
    pp_plan_options opt = {.metrics = 1U << PP_METRIC_GPU_UTIL, .lag_ns = 5 * S, .settle_ns = S};
    pp_plan *plan = make(&opt);
    pp_plan_queries q, under_way;
    assert_int_equal(pp_plan_need(plan, "GPU-a", T0, T0 + 10 * S, NULL), 0);
    assert_int_equal(pp_plan_next(plan, T0 + 30 * S, &q, NULL), 0);
    assert_int_equal(q.count, 1);
    pp_plan_answered(plan, q.items[0].id, T0 + 30 * S, true);
    assert_true(pp_plan_complete(plan));
    pp_plan_again(plan);
    assert_false(pp_plan_complete(plan));
    assert_true(pp_plan_due(plan) <= T0 + 30 * S);
    assert_int_equal(pp_plan_next(plan, T0 + 30 * S, &under_way, NULL), 0);
    assert_int_equal(under_way.count, 1);
    assert_string_equal(under_way.items[0].text, q.items[0].text);
    pp_plan_again(plan);
    pp_plan_stored(plan, "GPU-a", PP_METRIC_GPU_UTIL, T0 + 15 * S);
    pp_plan_answered(plan, under_way.items[0].id, T0 + 31 * S, true);
    assert_false(pp_plan_complete(plan));
    pp_plan_queries_done(&q);
    pp_plan_queries_done(&under_way);
    (void)pp_plan_free(plan);
}

static void test_quote(void **state)
{
    (void)state;
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"GPU-1", "GPU-1"},     {"a.b", "a\\\\.b"},
        {"a|b", "a\\\\|b"},     {"a\"b", "a\\\"b"},
        {"a\\b", "a\\\\\\\\b"}, {"(x)[y]{z}", "\\\\(x\\\\)\\\\[y\\\\]\\\\{z\\\\}"},
        {".*", "\\\\.\\\\*"},   {"^$+?", "\\\\^\\\\$\\\\+\\\\?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pp_buf out;
        pp_buf_init(&out, 100);
        assert_int_equal(pp_plan_quote(cases[i].text, &out, NULL), 0);
        assert_string_equal(out.data, cases[i].quoted);
        pp_buf_done(&out);
    }
    pp_buf out;
    pp_buf_init(&out, 100);
    assert_int_equal(pp_plan_quote("a\nb", &out, NULL), -1);
    pp_buf_done(&out);
}

static void test_refused_needs(void **state)
{
    (void)state;
    pp_plan *plan = make(&(pp_plan_options){0});
    pp_error err = {0};
    char longest[PP_PLAN_MAX_UUID + 2];
    memset(longest, 'x', sizeof longest);
    longest[PP_PLAN_MAX_UUID + 1] = '\0';
    assert_int_equal(pp_plan_need(plan, "", T0, T0, &err), -1);
    assert_int_equal(pp_plan_need(plan, longest, T0, T0, &err), -1);
    assert_int_equal(pp_plan_need(plan, "GPU 1", T0, T0, &err), -1);
    assert_int_equal(pp_plan_need(plan, "GPU-1", T0, T0 - 1, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    for (int i = 0; i < PP_PLAN_MAX_GPUS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "GPU-%d", i);
        assert_int_equal(pp_plan_need(plan, name, T0, T0, &err), 0);
    }
    assert_int_equal(pp_plan_need(plan, "GPU-x", T0, T0, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    (void)pp_plan_free(plan);
}

/* Runs the plan second by second from `from`; returns when it is complete, or 0. */
static int64_t run(pp_plan *plan, prometheus *p, const char *const *gpus, size_t n, int64_t from,
                   int seconds)
{
    for (int i = 0; i < seconds; i++) {
        int64_t now = from + i * S;
        if (pp_plan_complete(plan))
            return now;
        pp_plan_queries q;
        assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
        assert_true(q.count <= PP_PLAN_MAX_QUERIES);
        for (size_t j = 0; j < q.count; j++)
            answer(p, plan, &q.items[j], gpus, n, now);
        pp_plan_queries_done(&q);
    }
    return 0;
}

static const char *const two[] = {"GPU-1", "GPU-2"};

/* Everything appears in time: done as soon as the last needed sample is there. */
static void test_done_by_samples(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .interval_ns = 2 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pp_plan_need(plan, two[i], T0, T0 + 60 * S, NULL), 0);
    int64_t end = run(plan, &p, two, 2, T0 + 30 * S, 200);
    assert_in_range(end - T0, 65 * S, 70 * S);
    assert_true(p.first_got <= T0 - 14 * S); /* the lead too */
    assert_int_equal(pp_plan_due(plan), INT64_MAX);
    assert_true(p.samples < 2 * 6 * 2 * 85); /* each asked for less than twice */
    /* More is needed: it goes on. */
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 90 * S, NULL), 0);
    assert_false(pp_plan_complete(plan));
    assert_in_range(run(plan, &p, two, 2, end, 200) - T0, 95 * S, 100 * S);
    (void)pp_plan_free(plan);
}

/* Fields that the exporter does not have: done once they would have shown. */
static void test_done_by_time(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .interval_ns = 2 * S, .settle_ns = 10 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2, .scrape = S, .metrics = 3, .last = INT64_MAX};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pp_plan_need(plan, two[i], T0, T0 + 60 * S, NULL), 0);
    assert_in_range(run(plan, &p, two, 2, T0 + 30 * S, 300) - T0, 75 * S, 80 * S);
    (void)pp_plan_free(plan);
}

/* The exporter dies in the middle: what exists is got, and the plan ends. */
static void test_series_ends(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .interval_ns = 2 * S, .settle_ns = 10 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.scrape = S, .metrics = pp_metric_expected(PP_METRIC_ALL), .last = T0 + 20 * S};
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 60 * S, NULL), 0);
    assert_in_range(run(plan, &p, two, 2, T0 + 10 * S, 300) - T0, 75 * S, 80 * S);
    (void)pp_plan_free(plan);
}

/* Scrapes that show late are not lost. */
static void test_late_samples(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .interval_ns = 2 * S, .settle_ns = 15 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = 12 * S,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 60 * S, NULL), 0);
    assert_in_range(run(plan, &p, two, 2, T0, 300) - T0, 76 * S, 80 * S);
    (void)pp_plan_free(plan);
}

/* A long past is asked for in pieces, without a gap and without waiting in between. */
static void test_long_past(void **state)
{
    (void)state;
    pp_plan_options opt = {.samples_max = 6 * 600, .lag_ns = 5 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 6000 * S, NULL), 0);
    int64_t at = T0 + 7000 * S, covered = T0 - 15 * S;
    size_t queries = 0;
    for (int i = 0; i < 100 && !pp_plan_complete(plan); i++) {
        pp_plan_queries q;
        assert_int_equal(pp_plan_next(plan, at, &q, NULL), 0);
        assert_int_equal(q.count, 1);
        assert_true(q.items[0].time_ns - q.items[0].range_ns <= covered);
        assert_true(q.items[0].range_ns <= 601 * S);
        covered = q.items[0].time_ns;
        answer(&p, plan, &q.items[0], two, 1, at);
        pp_plan_queries_done(&q);
        queries++;
    }
    assert_true(pp_plan_complete(plan));
    assert_true(covered >= T0 + 6005 * S);
    assert_in_range(queries, 10, 12);
    (void)pp_plan_free(plan);
}

/* Prometheus gives less at once than is asked for: after a few refusals all comes, in pieces that
 * are no smaller than they have to be, and the limit is not tried again and again. */
static void test_limited_prometheus(void **state)
{
    (void)state;
    static const struct {
        size_t gpus, limit, refused, queries; /* most of both */
    } cases[] = {{40, 1000, 60, 600}, {200, 20100, 4, 60}};
    static char names[200][16];
    const char *gpus[200];
    for (size_t c = 0; c < 2; c++) {
        size_t n = cases[c].gpus;
        pp_plan_options opt = {.lag_ns = 5 * S};
        pp_plan *plan = make(&opt);
        prometheus p = {.scrape = S,
                        .metrics = pp_metric_expected(PP_METRIC_ALL),
                        .last = INT64_MAX,
                        .limit = cases[c].limit};
        for (size_t i = 0; i < n; i++) {
            (void)snprintf(names[i], sizeof names[i], "GPU-%03zu-", i);
            gpus[i] = names[i];
            assert_int_equal(pp_plan_need(plan, gpus[i], T0, T0 + 600 * S, NULL), 0);
        }
        assert_true(run(plan, &p, gpus, n, T0 + 700 * S, 600) > 0);
        assert_true(p.samples >= 6 * n * 605);
        assert_in_range(p.refused, 1, cases[c].refused);
        assert_in_range(p.queries, p.refused + n * 605 * 6 / p.limit, cases[c].queries);
        (void)pp_plan_free(plan);
    }
}

/* Ranges shorter than a sample takes to show, of fields that never do: what is recent is not asked
 * for again at once. */
static void test_short_ranges(void **state)
{
    (void)state;
    pp_plan_options opt = {.samples_max = 60, .settle_ns = 30 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.scrape = S, .metrics = 3, .last = INT64_MAX};
    int64_t now = T0 + 100 * S;
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 600 * S, NULL), 0);
    while (pp_plan_due(plan) <= now) {
        pp_plan_queries q;
        assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
        assert_int_equal(q.count, 1);
        answer(&p, plan, &q.items[0], two, 1, now);
        pp_plan_queries_done(&q);
        assert_true(p.queries < 20);
    }
    assert_int_equal(run(plan, &p, two, 1, now, 500), 0);
    assert_true(run(plan, &p, two, 1, now + 500 * S, 400) > 0);
    (void)pp_plan_free(plan);
}

/* What was not in partial answers is got when they are whole again; where they stay partial the
 * plan ends, and asks in reasonable numbers. */
static void test_partial_answers(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .wait_ns = 120 * S};
    for (int back = 0; back < 2; back++) {
        pp_plan *plan = make(&opt);
        prometheus p = {.delay = S / 2,
                        .scrape = S,
                        .metrics = PP_METRIC_ALL,
                        .last = INT64_MAX,
                        .away_until = back ? T0 + 90 * S : INT64_MAX};
        assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 52 * S, NULL), 0);
        int64_t end = run(plan, &p, two, 1, T0, 400);
        if (back) {
            assert_true(p.first_got <= T0 - 14 * S);
            assert_in_range(end - T0, 90 * S, 120 * S);
        } else {
            assert_int_equal(p.samples, 0);
            assert_in_range(end - T0, 176 * S, 180 * S);
        }
        assert_true(p.queries < 60);
        (void)pp_plan_free(plan);
    }
}

/* Of a Prometheus that always warns two minutes are asked for each time: not every few seconds.
 * Once it does not, as often as ever. */
static void test_always_partial(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .wait_ns = 120 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = PP_METRIC_ALL,
                    .last = INT64_MAX,
                    .away_until = T0 + 600 * S};
    size_t before = 0, between = 0;
    for (int64_t now = T0 + S; now < T0 + 925 * S; now += S) {
        pp_plan_queries q;
        assert_int_equal(pp_plan_need(plan, two[0], T0, now, NULL), 0);
        assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
        for (size_t i = 0; i < q.count; i++)
            answer(&p, plan, &q.items[i], two, 1, now);
        pp_plan_queries_done(&q);
        before = now < T0 + 600 * S ? p.queries : before;
        between = now < T0 + 900 * S ? p.queries : between;
        p.away_until = now < T0 + 899 * S ? p.away_until : INT64_MAX; /* once more */
    }
    assert_in_range(before, 15, 30);
    assert_in_range(between - before, 50, 65);
    assert_in_range(p.queries - between, 2, 5);
    assert_true(p.first_got <= T0 + 590 * S);
    (void)pp_plan_free(plan);
}

/* Many GPUs: few queries, each GPU in exactly one of them. */
static void test_many_gpus(void **state)
{
    (void)state;
    enum { N = 200 };
    static char names[N][16];
    const char *gpus[N];
    pp_plan *plan = make(&(pp_plan_options){0});
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "GPU-%03d-", i);
        gpus[i] = names[i];
        assert_int_equal(pp_plan_need(plan, names[i], T0 + i * S / 100, T0 + 30 * S, NULL), 0);
    }
    pp_plan_queries q;
    assert_int_equal(pp_plan_next(plan, T0 + 31 * S, &q, NULL), 0);
    assert_in_range(q.count, 4, 5);
    size_t total = 0;
    for (size_t i = 0; i < q.count; i++)
        total += q.items[i].n_gpus;
    assert_int_equal(total, N);
    for (int i = 0; i < N; i++) {
        size_t in = 0;
        for (size_t j = 0; j < q.count; j++)
            in += strstr(q.items[j].text, names[i]) != NULL;
        assert_int_equal(in, 1);
    }
    for (size_t j = 0; j < q.count; j++)
        pp_plan_answered(plan, q.items[j].id, T0 + 31 * S, false);
    pp_plan_queries_done(&q);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    assert_true(run(plan, &p, gpus, N, T0 + 40 * S, 200) > 0);
    (void)pp_plan_free(plan);
}

/* Prometheus away: backoff up to the maximum, given up only after the wait, taken up again. */
static void test_failures(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S, .wait_ns = 300 * S, .backoff_max_ns = 30 * S};
    pp_plan *plan = make(&opt);
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 60 * S, NULL), 0);
    int64_t now = T0 + 100 * S, last = 0;
    size_t asked = 0;
    while (!pp_plan_complete(plan)) {
        pp_plan_queries q;
        assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
        assert_int_equal(q.count, 1);
        pp_plan_answered(plan, q.items[0].id, now, false);
        pp_plan_queries_done(&q);
        last = now;
        now = pp_plan_due(plan);
        assert_in_range(now - last, 1 * S, 30 * S);
        assert_true(++asked < 50);
    }
    assert_in_range(asked, 13, 16);
    assert_true(last == T0 + 400 * S);
    pp_plan_queries q;
    assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
    assert_int_equal(q.count, 0);
    (void)pp_plan_free(plan);
}

/* Prometheus that comes back while a pause lasts, or after the wait but before the end, is asked
 * once more before it is given up. */
static void test_back_in_a_pause(void **state)
{
    (void)state;
    static const int ends[] = {60, 230};
    pp_plan_options opt = {.lag_ns = 5 * S, .wait_ns = 120 * S};
    for (size_t i = 0; i < 2; i++) {
        pp_plan *plan = make(&opt);
        prometheus p = {.delay = S / 2,
                        .scrape = S,
                        .metrics = pp_metric_expected(PP_METRIC_ALL),
                        .last = INT64_MAX};
        int64_t now = T0 + 100 * S;
        assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + ends[i] * S, NULL), 0);
        while (!pp_plan_complete(plan) && now < T0 + 1000 * S) {
            pp_plan_queries q;
            assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
            for (size_t k = 0; k < q.count && now >= T0 + 200 * S + (int)i * 30 * S; k++)
                answer(&p, plan, &q.items[k], two, 1, now);
            for (size_t k = 0; k < q.count; k++) /* those that are answered are known no more */
                pp_plan_answered(plan, q.items[k].id, now, false);
            pp_plan_queries_done(&q);
            now += S;
        }
        assert_in_range(p.samples, 6 * (ends[i] + 15), 6 * 2 * (ends[i] + 25));
        (void)pp_plan_free(plan);
    }
}

/* A minute away in the middle loses nothing. */
static void test_outage(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 120 * S, NULL), 0);
    assert_int_equal(run(plan, &p, two, 1, T0, 30), 0);
    for (int64_t now = T0 + 30 * S; now < T0 + 90 * S; now += S) {
        pp_plan_queries q;
        assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
        for (size_t i = 0; i < q.count; i++)
            pp_plan_answered(plan, q.items[i].id, now, false);
        pp_plan_queries_done(&q);
    }
    assert_true(run(plan, &p, two, 1, T0 + 90 * S, 200) > 0);
    assert_in_range(p.samples, 6 * 139, 6 * 139 * 2);
    (void)pp_plan_free(plan);
}

static void test_earlier_need(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    assert_int_equal(pp_plan_need(plan, two[0], T0 + 50 * S, T0 + 60 * S, NULL), 0);
    int64_t end = run(plan, &p, two, 1, T0 + 61 * S, 200);
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 10 * S, NULL), 0);
    assert_false(pp_plan_complete(plan));
    assert_true(run(plan, &p, two, 1, end, 200) > 0);
    assert_true(p.first_got <= T0 - 14 * S);
    (void)pp_plan_free(plan);
}

/* What is needed earlier while a query runs was not in it, however new its samples are. */
static void test_earlier_need_meanwhile(void **state)
{
    (void)state;
    pp_plan_options opt = {.lag_ns = 5 * S};
    pp_plan *plan = make(&opt);
    prometheus p = {.delay = S / 2,
                    .scrape = S,
                    .metrics = pp_metric_expected(PP_METRIC_ALL),
                    .last = INT64_MAX};
    int64_t now = T0 + 90 * S;
    pp_plan_queries q;
    assert_int_equal(pp_plan_need(plan, two[0], T0 + 50 * S, T0 + 60 * S, NULL), 0);
    assert_int_equal(pp_plan_next(plan, now, &q, NULL), 0);
    assert_int_equal(q.count, 1);
    assert_int_equal(pp_plan_need(plan, two[0], T0, T0 + 10 * S, NULL), 0);
    answer(&p, plan, &q.items[0], two, 1, now);
    pp_plan_queries_done(&q);
    assert_false(pp_plan_complete(plan));
    assert_true(run(plan, &p, two, 1, now, 200) > 0);
    assert_true(p.first_got <= T0 - 14 * S);
    (void)pp_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_text),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_refused_needs),
        cmocka_unit_test(test_done_by_samples),
        cmocka_unit_test(test_done_by_time),
        cmocka_unit_test(test_series_ends),
        cmocka_unit_test(test_late_samples),
        cmocka_unit_test(test_long_past),
        cmocka_unit_test(test_limited_prometheus),
        cmocka_unit_test(test_short_ranges),
        cmocka_unit_test(test_partial_answers),
        cmocka_unit_test(test_always_partial),
        cmocka_unit_test(test_many_gpus),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_back_in_a_pause),
        cmocka_unit_test(test_outage),
        cmocka_unit_test(test_earlier_need),
        cmocka_unit_test(test_earlier_need_meanwhile),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
