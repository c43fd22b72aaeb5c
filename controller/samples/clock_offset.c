#include "controller/samples/clock_offset.h"

#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)

enum {
    FIRST_FEW = 4,
    DRIFT_PPM = 200, /* of two clocks that nobody disciplines, generously */
    UNSTEADY = 3,    /* jumps among the trips that are kept */
};

/* ---- questions and answers ---- */

uint64_t pp_clock_ask(pp_clock *clock, int64_t monotonic_ns)
{
    clock->asked++;
    clock->asked_ns = monotonic_ns;
    clock->awaited = true;
    return clock->asked;
}

static bool is_time(int64_t ns)
{
    return ns > 0 && ns < PP_CLOCK_TIME_MAX;
}

int pp_clock_answered(pp_clock *clock, uint64_t number, const pp_clock_trip *trip)
{
    if (!clock->awaited || number != clock->asked)
        return -1;
    clock->awaited = false;
    clock->answers = true;
    const int64_t took = trip->received_ns - clock->asked_ns;
    if (took < 0 || took > PP_CLOCK_TRIP_MAX || !is_time(trip->real_ns) || trip->monotonic_ns < 0 ||
        trip->monotonic_ns >= PP_CLOCK_TIME_MAX || trip->grain_ns < 0 ||
        trip->grain_ns > PP_CLOCK_TRIP_MAX)
        return -1;
    pp_clock_trip *to = &clock->trips[clock->n++ % PP_CLOCK_TRIPS];
    *to = *trip;
    to->sent_ns = clock->asked_ns;
    return 0;
}

bool pp_clock_is_due(const pp_clock *clock, int64_t monotonic_ns)
{
    if (!clock->answers)
        return false;
    if (clock->asked < FIRST_FEW && !clock->awaited)
        return true;
    return monotonic_ns - clock->asked_ns >= PP_CLOCK_EVERY;
}

/* ---- what the trips say ---- */

/* One of its clocks against our monotonic one. */
typedef struct reading {
    bool known;
    int64_t ahead, bound;
} reading;

static size_t kept(const pp_clock *clock)
{
    return clock->n < PP_CLOCK_TRIPS ? clock->n : PP_CLOCK_TRIPS;
}

/* The i-th newest. */
static const pp_clock_trip *trip_at(const pp_clock *clock, size_t i)
{
    return &clock->trips[(clock->n - 1 - i) % PP_CLOCK_TRIPS];
}

static reading read_trip(const pp_clock_trip *t, bool monotonic)
{
    const int64_t half = (t->received_ns - t->sent_ns + 1) / 2;
    const int64_t its = monotonic ? t->monotonic_ns : t->real_ns;
    return (reading){.known = !monotonic || t->monotonic_ns != 0,
                     .ahead = its + t->grain_ns / 2 - (t->sent_ns + half),
                     .bound = half + (t->grain_ns + 1) / 2};
}

/* What two clocks may have drifted apart within that time. */
static int64_t drift(int64_t ns)
{
    return ns / 1000000 * DRIFT_PPM;
}

static bool agree(const reading *a, const reading *b, int64_t apart)
{
    return llabs(a->ahead - b->ahead) <= a->bound + b->bound + drift(apart);
}

/* The narrowest of the latest trips that agree with the newest one. */
static reading best(const pp_clock *clock, bool monotonic)
{
    if (clock->n == 0)
        return (reading){0};
    const pp_clock_trip *newest = trip_at(clock, 0);
    const reading now = read_trip(newest, monotonic);
    reading found = now;
    for (size_t i = 1; i < kept(clock) && now.known; i++) {
        const pp_clock_trip *t = trip_at(clock, i);
        const int64_t apart = newest->received_ns - t->received_ns;
        reading r = read_trip(t, monotonic);
        if (!r.known || !agree(&now, &r, apart))
            break;
        r.bound += drift(apart);
        if (r.bound < found.bound)
            found = r;
    }
    return found;
}

static pp_clock_offset against_real(const reading *r, const pp_clock_now *now)
{
    if (!r->known)
        return (pp_clock_offset){0};
    return (pp_clock_offset){.known = true,
                             .ahead_ns = r->ahead - (now->real_ns - now->monotonic_ns),
                             .bound_ns = r->bound};
}

pp_clock_offset pp_clock_offset_of(const pp_clock *clock, const pp_clock_now *now)
{
    const reading real = best(clock, false);
    return against_real(&real, now);
}

bool pp_clock_is_unsteady(const pp_clock *clock)
{
    int jumps = 0;
    for (size_t i = 1; i < kept(clock); i++) {
        const pp_clock_trip *newer = trip_at(clock, i - 1), *older = trip_at(clock, i);
        const bool monotonic = newer->monotonic_ns && older->monotonic_ns;
        const reading a = read_trip(newer, monotonic), b = read_trip(older, monotonic);
        jumps += !agree(&a, &b, newer->received_ns - older->received_ns);
    }
    return jumps >= UNSTEADY;
}

int64_t pp_clock_shift(int64_t before_ns, const pp_clock_offset *offset)
{
    if (!offset->known ||
        llabs(offset->ahead_ns - before_ns) <= offset->bound_ns + PP_CLOCK_TOLERANCE)
        return before_ns;
    return offset->ahead_ns;
}

/* ---- stamps ---- */

/* Stamps that tell their moment on the monotonic clock too are placed by that: their clock may have
 * been set since. One that lies ahead is of another boot. */
static pp_clock_offset offset_of_stamps(const pp_clock *clock, const pp_clock_stamps *stamps,
                                        const pp_clock_now *now)
{
    const reading monotonic = best(clock, true);
    const int64_t end = stamps->monotonic_ns + (stamps->end_ns - stamps->start_ns);
    const int64_t latest = now->monotonic_ns + monotonic.ahead + monotonic.bound + SECOND;
    if (stamps->monotonic_ns == 0 || !monotonic.known || end > latest)
        return pp_clock_offset_of(clock, now);
    pp_clock_offset offset = against_real(&monotonic, now);
    offset.ahead_ns += stamps->start_ns - stamps->monotonic_ns;
    return offset;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A creation is never later than now: by an API server's clock that is ahead it bounds nothing. */
static int64_t bound(int64_t created_ns, const pp_clock_frame *frame)
{
    return created_ns <= frame->now.real_ns ? created_ns : 0;
}

/* No step of the session can be from before. */
static int64_t earliest(const pp_clock_frame *frame)
{
    return later(bound(frame->session_ns, frame), bound(frame->pod_ns, frame));
}

static int64_t began(const pp_clock_stamps *stamps, const pp_clock_frame *frame,
                     const pp_clock_ruling *ruling)
{
    if (!stamps->first_ns)
        return 0;
    int64_t at = stamps->first_ns - ruling->shift_ns;
    if (!ruling->offset.known)
        at = frame->now.real_ns - later(stamps->end_ns - stamps->first_ns, 0);
    return later(earlier(at, frame->now.real_ns), earliest(frame));
}

/* Whether the clock can be used at all. */
static pp_clock_verdict judge_clock(const pp_clock *clock, const pp_clock_offset *offset)
{
    if (pp_clock_is_unsteady(clock))
        return PP_CLOCK_UNSTEADY;
    return offset->known && llabs(offset->ahead_ns) > PP_CLOCK_OFFSET_MAX ? PP_CLOCK_FAR
                                                                          : PP_CLOCK_TAKEN;
}

pp_clock_ruling pp_clock_judge(const pp_clock *clock, const pp_clock_stamps *stamps,
                               const pp_clock_frame *frame)
{
    pp_clock_ruling r = {.offset = offset_of_stamps(clock, stamps, &frame->now)};
    r.verdict = judge_clock(clock, &r.offset);
    r.shift_ns = frame->shift_ns;
    if (r.verdict != PP_CLOCK_TAKEN)
        return r;
    r.shift_ns = pp_clock_shift(frame->shift_ns, &r.offset);
    const int64_t before = earliest(frame) - (stamps->start_ns - r.shift_ns);
    const int64_t after = stamps->end_ns - r.shift_ns - frame->now.real_ns;
    if (after > PP_CLOCK_SLACK || before > PP_CLOCK_SLACK) {
        r.verdict = after > PP_CLOCK_SLACK ? PP_CLOCK_AFTER : PP_CLOCK_BEFORE;
        r.off_ns = after > PP_CLOCK_SLACK ? after : before;
        return r;
    }
    r.began_ns = began(stamps, frame, &r);
    return r;
}

/* ---- words ---- */

const char *pp_clock_verdict_name(pp_clock_verdict verdict)
{
    static const char *const names[PP_CLOCK_VERDICTS] = {
        [PP_CLOCK_TAKEN] = "taken",   [PP_CLOCK_FAR] = "far",     [PP_CLOCK_UNSTEADY] = "unsteady",
        [PP_CLOCK_BEFORE] = "before", [PP_CLOCK_AFTER] = "after",
    };
    return verdict < PP_CLOCK_VERDICTS ? names[verdict] : "?";
}

bool pp_clock_clip(int64_t session_ns, int64_t now_ns, int64_t *from_ns, int64_t *to_ns)
{
    *from_ns = later(*from_ns, earlier(session_ns, now_ns) - PP_CLOCK_SLACK);
    *to_ns = earlier(*to_ns, now_ns + PP_CLOCK_SLACK);
    return *from_ns <= *to_ns;
}

void pp_clock_explain(const pp_clock_ruling *r, const char *node, char *out, size_t size)
{
    char off[64];
    const bool after = r->verdict == PP_CLOCK_AFTER;
    pp_clock_describe(r->verdict == PP_CLOCK_FAR ? r->offset.ahead_ns : r->off_ns, off, sizeof off);
    if (r->verdict == PP_CLOCK_BEFORE || after) /* how long alone, without the side */
        *strrchr(off, ' ') = '\0';
    node = node ? node : "?";
    if (r->verdict == PP_CLOCK_FAR)
        (void)snprintf(out, size,
                       "the clock of node %s is %s, more than is taken out; set "
                       "it",
                       node, off);
    else if (r->verdict == PP_CLOCK_UNSTEADY)
        (void)snprintf(out, size, "the clock of node %s jumps to and fro; see what sets it", node);
    else
        (void)snprintf(out, size, "its stamps, by the clock of node %s, lie %s %s; set that clock",
                       node, off,
                       after ? "ahead of the operator's" : "before the session or the pod");
}

void pp_clock_describe(int64_t ahead_ns, char *out, size_t size)
{
    static const int64_t day = 86400 * SECOND;
    const char *side = ahead_ns < 0 ? "behind" : "ahead";
    const int64_t far = ahead_ns == INT64_MIN ? INT64_MAX : llabs(ahead_ns);
    const int64_t grain = far < 10 * SECOND ? MILLISECOND : SECOND;
    char text[64];
    if (far >= 730 * day) {
        (void)snprintf(out, size, "%lld years %s", (long long)(far / (365 * day + day / 4)), side);
    } else if (far >= 2 * day) {
        (void)snprintf(out, size, "%lld days %s", (long long)(far / day), side);
    } else {
        pp_duration_format((far + grain / 2) / grain * grain, text, sizeof text);
        (void)snprintf(out, size, "%s %s", text, side);
    }
}
