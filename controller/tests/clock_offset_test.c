/* Offsets from round trips, against clocks and peers that are anything but fair. */
#include "common/tests/cmocka_all.h"
#include "controller/samples/clock_offset.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define YEAR (365 * DAY)
#define EPOCH INT64_C(1769000000000000000) /* our CLOCK_REALTIME where our CLOCK_MONOTONIC is 0 */

/* Another clock: CLOCK_REALTIME less ours, CLOCK_MONOTONIC less ours. */
typedef struct other {
    int64_t real, monotonic;
    bool silent; /* of its CLOCK_MONOTONIC */
} other;

static pp_clock_now at(int64_t monotonic)
{
    return (pp_clock_now){.real_ns = EPOCH + monotonic, .monotonic_ns = monotonic};
}

/* A question at `sent`, read there after `there`, answered after `back`. */
static int trip(pp_clock *c, const other *o, int64_t sent, int64_t there, int64_t back)
{
    const int64_t read = sent + there;
    const uint64_t number = pp_clock_ask(c, sent);
    return pp_clock_answered(c, number,
                             &(pp_clock_trip){.received_ns = read + back,
                                              .real_ns = EPOCH + read + o->real,
                                              .monotonic_ns = o->silent ? 0 : read + o->monotonic});
}

static void assert_offset(const pp_clock *c, int64_t now, int64_t truth, int64_t most)
{
    const pp_clock_now moment = at(now);
    const pp_clock_offset o = pp_clock_offset_of(c, &moment);
    assert_true(o.known);
    assert_true(o.bound_ns <= most);
    if (llabs(o.ahead_ns - truth) > o.bound_ns)
        fail_msg("%lld is not within %lld of %lld", (long long)o.ahead_ns, (long long)o.bound_ns,
                 (long long)truth);
}

/* Whatever the ways there and back take, the truth is within the bound, and the best trip counts.
 */
static void test_uneven_ways(void **state)
{
    (void)state;
    static const int64_t truths[] = {0, 3 * MS, -MINUTE, 3 * MINUTE, -HOUR, HOUR, -20 * YEAR};
    static const int64_t ways[][2] = {{MS, MS},    {0, 800 * MS}, {800 * MS, 0},  {30 * MS, MS},
                                      {2 * MS, 0}, {0, 3 * MS},   {900 * MS, MS}, {MS, 1000 * MS}};
    for (size_t t = 0; t < sizeof truths / sizeof *truths; t++) {
        pp_clock c = {0};
        const other o = {.real = truths[t], .monotonic = 5 * HOUR};
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            assert_int_equal(trip(&c, &o, (int64_t)i * MINUTE, ways[i][0], ways[i][1]), 0);
            assert_offset(&c, (int64_t)i * MINUTE + 2 * SECOND, truths[t], 800 * MS);
        }
        assert_offset(&c, 8 * MINUTE, truths[t], MS + 5 * MINUTE / 1000000 * 200);
    }
}

static void test_nothing_known(void **state)
{
    (void)state;
    pp_clock c = {0};
    const pp_clock_now now = at(SECOND);
    assert_false(pp_clock_offset_of(&c, &now).known);
    assert_false(pp_clock_is_unsteady(&c));
    const pp_clock_offset none = pp_clock_offset_of(&c, &now);
    assert_true(pp_clock_shift(77, &none) == 77);
}

/* Old answers, made-up ones, answers without a question, times that are none. */
static void test_answers_that_do_not_count(void **state)
{
    (void)state;
    pp_clock c = {0};
    pp_clock_trip t = {.received_ns = SECOND + MS, .real_ns = EPOCH, .monotonic_ns = 5};
    assert_int_equal(pp_clock_answered(&c, 0, &t), -1);
    assert_int_equal(pp_clock_answered(&c, 1, &t), -1);
    const uint64_t first = pp_clock_ask(&c, SECOND);
    assert_int_equal(pp_clock_answered(&c, first + 1, &t), -1);
    assert_false(c.answers);
    assert_int_equal(pp_clock_answered(&c, first, &t), 0);
    assert_int_equal(pp_clock_answered(&c, first, &t), -1); /* again */
    const uint64_t second = pp_clock_ask(&c, 2 * SECOND);
    assert_int_equal(pp_clock_answered(&c, first, &t), -1);
    const pp_clock_trip none[] = {
        {.received_ns = 2 * SECOND + MS, .real_ns = 0},
        {.received_ns = 2 * SECOND + MS, .real_ns = -5},
        {.received_ns = 2 * SECOND + MS, .real_ns = INT64_MAX},
        {.received_ns = 2 * SECOND + MS, .real_ns = EPOCH, .monotonic_ns = -1},
        {.received_ns = 2 * SECOND + MS, .real_ns = EPOCH, .monotonic_ns = INT64_MAX},
        {.received_ns = 2 * SECOND - 1, .real_ns = EPOCH, .monotonic_ns = 5},
        {.received_ns = 5 * SECOND, .real_ns = EPOCH, .monotonic_ns = 5},
    };
    uint64_t number = second;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(pp_clock_answered(&c, number, &none[i]), -1);
        number = pp_clock_ask(&c, 2 * SECOND);
    }
    assert_true(c.n == 1);
}

static void test_when_to_ask(void **state)
{
    (void)state;
    pp_clock c = {0};
    const other o = {0};
    assert_false(pp_clock_is_due(&c, HOUR));
    const uint64_t number = pp_clock_ask(&c, SECOND);
    assert_false(pp_clock_is_due(&c, HOUR)); /* it may be one that knows no questions */
    const pp_clock_trip late = {.received_ns = SECOND + 3 * SECOND, .real_ns = EPOCH};
    assert_int_equal(pp_clock_answered(&c, number, &late), -1);
    int64_t now = 4 * SECOND;
    for (int i = 0; i < 3; i++, now += 10 * MS) {
        assert_true(pp_clock_is_due(&c, now));
        assert_int_equal(trip(&c, &o, now, MS, MS), 0);
    }
    assert_false(pp_clock_is_due(&c, now));
    assert_false(pp_clock_is_due(&c, now + PP_CLOCK_EVERY - 20 * MS));
    assert_true(pp_clock_is_due(&c, now + PP_CLOCK_EVERY));
    (void)pp_clock_ask(&c, now + PP_CLOCK_EVERY);
    assert_false(pp_clock_is_due(&c, now + PP_CLOCK_EVERY + SECOND));
    assert_true(pp_clock_is_due(&c, now + 2 * PP_CLOCK_EVERY));
}

/* A clock that is set: what was known before counts no more, as soon as an answer shows it. */
static void test_steps(void **state)
{
    (void)state;
    pp_clock c = {0};
    other o = {.real = 0, .monotonic = HOUR};
    for (int i = 0; i < 8; i++)
        assert_int_equal(trip(&c, &o, i * 15 * SECOND, MS / 2, MS / 2), 0);
    o.real = -HOUR;
    assert_int_equal(trip(&c, &o, 120 * SECOND, 40 * MS, 10 * MS), 0);
    assert_offset(&c, 121 * SECOND, -HOUR, 25 * MS);
    assert_false(pp_clock_is_unsteady(&c));
    assert_int_equal(trip(&c, &o, 135 * SECOND, MS, MS), 0);
    assert_offset(&c, 136 * SECOND, -HOUR, 2 * MS);
}

/* Two clocks that drift apart: old trips are good for as long as the drift allows. */
static void test_drift(void **state)
{
    (void)state;
    pp_clock c = {0};
    for (int i = 0; i < 40; i++) {
        const int64_t sent = i * 15 * SECOND;
        const other o = {.real = HOUR + sent / 1000000 * 100, .monotonic = sent / 1000000 * 100};
        assert_int_equal(trip(&c, &o, sent, i % 8 ? 20 * MS : MS, i % 8 ? 5 * MS : MS), 0);
        assert_offset(&c, sent + 30 * MS, o.real, 25 * MS);
    }
    assert_false(pp_clock_is_unsteady(&c));
}

/* Our own clock is set: trips are placed by the one that is not. */
static void test_our_own_step(void **state)
{
    (void)state;
    pp_clock c = {0};
    const other o = {.real = 0, .monotonic = 7 * SECOND};
    assert_int_equal(trip(&c, &o, SECOND, MS, MS), 0);
    const pp_clock_now now = {.real_ns = EPOCH + 2 * SECOND + HOUR, .monotonic_ns = 2 * SECOND};
    const pp_clock_offset off = pp_clock_offset_of(&c, &now);
    assert_true(llabs(off.ahead_ns + HOUR) <= off.bound_ns);
}

/* Answers that say something else each time. */
static void test_garbage_is_unsteady(void **state)
{
    (void)state;
    pp_clock c = {0};
    srand(7);
    for (int i = 0; i < 8; i++) {
        const other o = {.real = rand() % 1000 * MINUTE, .monotonic = rand() % 1000 * MINUTE};
        assert_int_equal(trip(&c, &o, i * SECOND, MS, MS), 0);
    }
    assert_true(pp_clock_is_unsteady(&c));
    const other quiet = {.monotonic = HOUR};
    for (int i = 8; i < 16; i++)
        assert_int_equal(trip(&c, &quiet, i * SECOND, MS, MS), 0);
    assert_false(pp_clock_is_unsteady(&c));
}

/* What agrees with us stays as it is, to the nanosecond; what was taken out stays too. */
static void test_shift(void **state)
{
    (void)state;
    static const struct {
        int64_t before, ahead, bound, shift;
    } cases[] = {
        {0, 0, MS, 0},
        {0, 15 * MS, MS, 0},
        {0, -20 * MS, 0, 0},
        {0, 400 * MS, 390 * MS, 0},
        {0, 22 * MS, MS, 22 * MS},
        {0, -3 * MINUTE, MS, -3 * MINUTE},
        {-3 * MINUTE, -3 * MINUTE + 5 * MS, MS, -3 * MINUTE},
        {-3 * MINUTE, 0, MS, 0},
        {-3 * MINUTE, MS, MS, MS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pp_clock_offset o = {
            .known = true, .ahead_ns = cases[i].ahead, .bound_ns = cases[i].bound};
        assert_true(pp_clock_shift(cases[i].before, &o) == cases[i].shift);
    }
}

/* ---- stamps ---- */

/* A frame at `now` (our monotonic clock) of a session and a pod that old. */
static pp_clock_frame frame_at(int64_t now, int64_t session_age, int64_t pod_age)
{
    const pp_clock_now moment = at(now);
    return (pp_clock_frame){.now = moment,
                            .session_ns = moment.real_ns - session_age,
                            .pod_ns = moment.real_ns - pod_age};
}

/* A batch of 2 s that has just ended, its first step half a second in. */
static pp_clock_stamps batch_at(const other *o, int64_t now, bool monotonic)
{
    const int64_t start = now - 2 * SECOND;
    return (pp_clock_stamps){.start_ns = EPOCH + start + o->real,
                             .end_ns = EPOCH + now + o->real,
                             .first_ns = EPOCH + start + SECOND / 2 + o->real,
                             .monotonic_ns = monotonic ? start + o->monotonic : 0};
}

#define NOW (2 * HOUR)

static pp_clock clock_of(const other *o)
{
    pp_clock c = {0};
    for (int i = 4; i > 0; i--)
        assert_int_equal(trip(&c, o, NOW - i * SECOND, MS, MS), 0);
    return c;
}

/* Clocks wrong by minutes, hours: taken out, and the first step began when it did. */
static void test_offsets_are_taken_out(void **state)
{
    (void)state;
    static const int64_t offsets[] = {-HOUR, -3 * MINUTE, 3 * MINUTE, HOUR, -23 * HOUR, 23 * HOUR};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        for (int told = 0; told < 2; told++) {
            const other o = {.real = offsets[i], .monotonic = 11 * HOUR};
            const pp_clock c = clock_of(&o);
            const pp_clock_stamps s = batch_at(&o, NOW, told);
            const pp_clock_frame f = frame_at(NOW, MINUTE, 50 * SECOND);
            const pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
            assert_int_equal(r.verdict, PP_CLOCK_TAKEN);
            assert_true(llabs(r.shift_ns - offsets[i]) <= MS);
            assert_true(llabs(r.began_ns - (f.now.real_ns - 3 * SECOND / 2)) <= MS);
            assert_true(r.offset.known && llabs(r.offset.ahead_ns - offsets[i]) <= MS);
        }
    }
}

/* An honest agent's stamps are left alone to the last nanosecond. */
static void test_honest_stamps_stay(void **state)
{
    (void)state;
    const other o = {.real = 3 * MS, .monotonic = 11 * HOUR};
    const pp_clock c = clock_of(&o);
    const pp_clock_stamps s = batch_at(&o, NOW, true);
    const pp_clock_frame f = frame_at(NOW, MINUTE, 50 * SECOND);
    const pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
    assert_int_equal(r.verdict, PP_CLOCK_TAKEN);
    assert_true(r.shift_ns == 0);
    assert_true(r.began_ns == s.first_ns);
}

/* The clock is set between the batch and its sending, or a day of spooled batches comes: the stamps
 * know when they were made. */
static void test_set_after_the_batch(void **state)
{
    (void)state;
    const other then = {.real = -HOUR, .monotonic = 11 * HOUR};
    const other now = {.real = 0, .monotonic = 11 * HOUR};
    const pp_clock c = clock_of(&now);
    pp_clock_stamps s = batch_at(&then, NOW - 20 * MINUTE, true);
    const pp_clock_frame f = frame_at(NOW, HOUR, HOUR);
    pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
    assert_int_equal(r.verdict, PP_CLOCK_TAKEN);
    assert_true(llabs(r.shift_ns + HOUR) <= MS);
    assert_true(llabs(r.began_ns - (f.now.real_ns - 20 * MINUTE - 3 * SECOND / 2)) <= MS);
    s.monotonic_ns = 0; /* one that does not know is taken for one of now, and is outside */
    r = pp_clock_judge(&c, &s, &f);
    assert_int_equal(r.verdict, PP_CLOCK_BEFORE);
    assert_true(llabs(r.off_ns - 20 * MINUTE - 2 * SECOND) <= MS);
}

/* A batch from before the node was started anew: its monotonic stamp means nothing any more. */
static void test_another_boot(void **state)
{
    (void)state;
    const other before = {.real = 0, .monotonic = 300 * DAY};
    const other now = {.real = 0, .monotonic = -NOW + MINUTE};
    const pp_clock c = clock_of(&now);
    const pp_clock_stamps s = batch_at(&before, NOW - 3 * MINUTE, true);
    const pp_clock_frame f = frame_at(NOW, HOUR, HOUR);
    const pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
    assert_int_equal(r.verdict, PP_CLOCK_TAKEN);
    assert_true(r.shift_ns == 0);
}

/* Of a clock of which nothing is known: stamps outside the session are refused, the others taken as
 * they are, and the beginning is by when they came. */
static void test_unknown_clocks(void **state)
{
    (void)state;
    static const struct {
        int64_t offset;
        pp_clock_verdict verdict;
    } cases[] = {
        {0, PP_CLOCK_TAKEN},
        {30 * SECOND, PP_CLOCK_TAKEN},
        {-30 * SECOND, PP_CLOCK_TAKEN},
        {-3 * MINUTE, PP_CLOCK_BEFORE},
        {3 * MINUTE, PP_CLOCK_AFTER},
        {-HOUR, PP_CLOCK_BEFORE},
        {HOUR, PP_CLOCK_AFTER},
        {-26 * YEAR, PP_CLOCK_BEFORE},
        {73 * YEAR, PP_CLOCK_AFTER},
    };
    const pp_clock none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const other o = {.real = cases[i].offset};
        const pp_clock_stamps s = batch_at(&o, NOW, false);
        const pp_clock_frame f = frame_at(NOW, MINUTE, HOUR);
        const pp_clock_ruling r = pp_clock_judge(&none, &s, &f);
        assert_int_equal(r.verdict, cases[i].verdict);
        assert_true(r.shift_ns == 0 && !r.offset.known);
        if (r.verdict == PP_CLOCK_TAKEN)
            assert_true(r.began_ns == f.now.real_ns - 3 * SECOND / 2);
        else
            assert_true(r.began_ns == 0 && r.off_ns > PP_CLOCK_SLACK);
    }
}

/* Known, and past all bounds; however large the numbers are. */
static void test_clocks_that_are_none(void **state)
{
    (void)state;
    static const int64_t offsets[] = {-26 * YEAR, 70 * YEAR, 25 * HOUR, -25 * HOUR};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        const other o = {.real = offsets[i], .monotonic = 11 * HOUR};
        const pp_clock c = clock_of(&o);
        const pp_clock_stamps s = batch_at(&o, NOW, i % 2);
        const pp_clock_frame f = frame_at(NOW, MINUTE, HOUR);
        const pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
        assert_int_equal(r.verdict, PP_CLOCK_FAR);
        assert_true(r.offset.known && llabs(r.offset.ahead_ns - offsets[i]) <= MS);
    }
    const pp_clock_stamps wild = {.start_ns = PP_CLOCK_TIME_MAX - DAY,
                                  .end_ns = PP_CLOCK_TIME_MAX,
                                  .first_ns = INT64_C(946684800000000000),
                                  .monotonic_ns = 1};
    const other far = {.monotonic = PP_CLOCK_TIME_MAX - 3 * HOUR,
                       .real = PP_CLOCK_TIME_MAX - EPOCH - 3 * HOUR};
    pp_clock c = {0};
    assert_int_equal(trip(&c, &far, NOW, MS, MS), 0);
    const pp_clock_frame f = frame_at(NOW, MINUTE, HOUR);
    assert_int_equal(pp_clock_judge(&c, &wild, &f).verdict, PP_CLOCK_FAR);
}

/* A clock that jumps to and fro is none either, though each answer is a good one. */
static void test_unsteady_clocks_are_refused(void **state)
{
    (void)state;
    pp_clock c = {0};
    other o = {.monotonic = 10 * HOUR};
    for (int i = 0; i < 8; i++) {
        o = (other){.real = i % 2 * HOUR, .monotonic = 10 * HOUR + i % 2 * HOUR};
        assert_int_equal(trip(&c, &o, NOW - (8 - i) * SECOND, MS, MS), 0);
    }
    const pp_clock_stamps s = batch_at(&o, NOW, true);
    const pp_clock_frame f = frame_at(NOW, MINUTE, HOUR);
    assert_int_equal(pp_clock_judge(&c, &s, &f).verdict, PP_CLOCK_UNSTEADY);
}

/* The API server's clock may be ahead of ours: that refuses nothing. */
static void test_created_in_the_future(void **state)
{
    (void)state;
    const other o = {.monotonic = HOUR};
    const pp_clock c = clock_of(&o);
    const pp_clock_frame f = frame_at(NOW, -HOUR, -HOUR);
    static const int64_t ages[] = {0, 10 * MINUTE}; /* agents keep what they cannot send */
    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        const pp_clock_stamps s = batch_at(&o, NOW - ages[i], true);
        const pp_clock_ruling r = pp_clock_judge(&c, &s, &f);
        assert_int_equal(r.verdict, PP_CLOCK_TAKEN);
        assert_true(r.began_ns == s.first_ns - r.shift_ns);
    }
}

/* A step may have begun before its session; a batch without one tells no beginning. */
static void test_beginnings(void **state)
{
    (void)state;
    const other o = {.monotonic = HOUR};
    const pp_clock c = clock_of(&o);
    pp_clock_stamps s = batch_at(&o, NOW, true);
    s.first_ns = s.start_ns - HOUR;
    const pp_clock_frame f = frame_at(NOW, MINUTE, HOUR);
    assert_true(pp_clock_judge(&c, &s, &f).began_ns == f.session_ns);
    s.first_ns = 0;
    assert_true(pp_clock_judge(&c, &s, &f).began_ns == 0);
}

/* What is stored of a session is asked for; what cannot be of it is not. */
static void test_ranges_are_clipped(void **state)
{
    (void)state;
    static const struct {
        int64_t from, to, clipped_from, clipped_to; /* s; the session came at 0, now is 600 */
    } cases[] = {
        {10, 20, 10, 20},
        {-800000000, 20, -60, 20},
        {10, 900000000, 10, 660},
        {-800000000, -700000000, 0, 0},
        {900000000, 900000001, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t from = EPOCH + cases[i].from * SECOND, to = EPOCH + cases[i].to * SECOND;
        const bool left = pp_clock_clip(EPOCH, EPOCH + 600 * SECOND, &from, &to);
        assert_int_equal(left, cases[i].clipped_to != 0);
        if (left)
            assert_true(from == EPOCH + cases[i].clipped_from * SECOND &&
                        to == EPOCH + cases[i].clipped_to * SECOND);
    }
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        int64_t ahead;
        const char *text;
    } cases[] = {
        {-HOUR, "1h behind"},
        {3 * MINUTE + 400 * MS, "3m ahead"},
        {-(1234 * MS + 567), "1s234ms behind"},
        {25 * HOUR, "25h ahead"},
        {-3 * DAY, "3 days behind"},
        {-26 * YEAR - 10 * DAY, "26 years behind"},
        {INT64_MIN, "292 years behind"},
        {0, "0s ahead"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        pp_clock_describe(cases[i].ahead, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    static const struct {
        pp_clock_ruling ruling;
        const char *text;
    } whys[] = {
        {{.verdict = PP_CLOCK_FAR, .offset = {.known = true, .ahead_ns = -26 * YEAR}},
         "the clock of node n1 is 25 years behind, more than is taken out; set "
         "it"},
        {{.verdict = PP_CLOCK_UNSTEADY}, "the clock of node n1 jumps to and fro; see what sets it"},
        {{.verdict = PP_CLOCK_BEFORE, .off_ns = 3 * MINUTE},
         "its stamps, by the clock of node n1, lie 3m before the session or the pod; set that "
         "clock"},
        {{.verdict = PP_CLOCK_AFTER, .off_ns = 73 * YEAR},
         "its stamps, by the clock of node n1, lie 72 years ahead of the operator's; set that "
         "clock"},
    };
    for (size_t i = 0; i < sizeof whys / sizeof *whys; i++) {
        char text[256];
        pp_clock_explain(&whys[i].ruling, "n1", text, sizeof text);
        assert_string_equal(text, whys[i].text);
    }
    for (int v = 0; v < PP_CLOCK_VERDICTS; v++)
        assert_true(strlen(pp_clock_verdict_name((pp_clock_verdict)v)) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven_ways),
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_answers_that_do_not_count),
        cmocka_unit_test(test_when_to_ask),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_our_own_step),
        cmocka_unit_test(test_garbage_is_unsteady),
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_offsets_are_taken_out),
        cmocka_unit_test(test_honest_stamps_stay),
        cmocka_unit_test(test_set_after_the_batch),
        cmocka_unit_test(test_another_boot),
        cmocka_unit_test(test_unknown_clocks),
        cmocka_unit_test(test_clocks_that_are_none),
        cmocka_unit_test(test_unsteady_clocks_are_refused),
        cmocka_unit_test(test_created_in_the_future),
        cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_ranges_are_clipped),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
