/*
 * How long steps take, marked and plain: what the hook really costs, whatever it is made of. The
 * host's time of single steps says little where a training waits for its GPU only now and then, so
 * steps are taken in blocks: of 16, or, where they are long, of a quarter of a second, so that a
 * capture of two seconds has enough of them. A marked block is compared only with plain ones just
 * before it, or just after where none were before: what the machine did a minute ago says nothing
 * about now.
 *
 * Plain steps are the training's own: the agent is told how long they take, too.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum { BLOCK = 16, BLOCKS = 9, KNOWN = 3, SMOOTH = 32, FAR = 3, VARIES = 20 };

/* What is made up for is bounded: three blocks beside others of another kind, say of a validation,
 * would keep the budget from being spent for hours. Parts have been seen to miss half. */
enum { MISSING_MOST = 8 };

/* And what a GPU that sets the pace hides: ResNet-50's parts came to 3.4 times what was missing. */
enum { HIDDEN_MOST = 4 };

/* ns of a block that is over with fewer steps. */
#define BLOCK_NS INT64_C(250000000)

/* ns between a plain block and a marked one that may be held against it. */
#define NEAR INT64_C(10000000000)

enum { NEITHER, PLAIN, MARKED };

typedef struct circle {
    int64_t values[BLOCKS]; /* the latest ones */
    unsigned count;         /* ever taken */
    int64_t level;          /* their mean, without what is far off ... */
    int64_t spread;         /* ... and 1.5 times its standard error */
} circle;

static circle plain; /* ns of a step */
/* ns that a marked step took longer than plain ones before it, by what was recorded. */
enum { OWN, CALLS, NO_KERNELS };
static circle extra[NO_KERNELS + 1];
static int64_t plain_until;

/* Marked blocks that no plain one was near before. */
static struct {
    int recorded;
    unsigned count;
    int64_t values[BLOCKS]; /* ns of a step */
    int64_t until;
    int after; /* plain ones since */
} alone;

/* Marked steps that were counted as the sum of their parts, since nothing else was known. */
static struct {
    int64_t steps, cost;
} unsure[NO_KERNELS + 1];

static struct {
    int kind;
    int steps;
    int64_t since;
} block;

/* Plain steps, one after the other, that the agent is told of: about a second of them, or, where
 * they are cut short, so many at least that it does not matter in which of them the training waits
 * for its GPU. */
#define RUN_NS INT64_C(1000000000)
static struct {
    uint32_t steps;
    int64_t since; /* 0: none */
    int64_t until;
} run;

static void sort(int64_t *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            int64_t t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
}

static int held(const circle *c)
{
    return c->count < BLOCKS ? (int)c->count : BLOCKS;
}

static int64_t median(int64_t *v, int n)
{
    sort(v, n);
    return v[n / 2];
}

/* Median of how far the values are from `from`, as a normal distribution's standard deviation. */
static double deviation(const circle *c, int64_t from)
{
    int n = held(c);
    int64_t v[BLOCKS] = {0};
    for (int i = 0; i < n; i++)
        v[i] = c->values[i] > from ? c->values[i] - from : from - c->values[i];
    return 1.4826 * (double)median(v, n);
}

/* Their mean, those far off the median taken as `most` off: marked steps that take longer now and
 * then are the hook's cost too, and a checkpoint is not. */
static int64_t level_of(const circle *c, int64_t middle, double most)
{
    double sum = 0;
    for (int i = 0; i < held(c); i++) {
        double more = (double)(c->values[i] - middle);
        sum += more > most ? most : more < -most ? -most : more;
    }
    return middle + (int64_t)(sum / held(c));
}

static int recorded_now(const pp_pace_kernels *k)
{
    return !k->active ? NO_KERNELS : k->by_calls ? CALLS : OWN;
}

static void take(circle *c, int64_t value)
{
    static const double root[BLOCKS + 1] = {1, 1, 1.414, 1.732, 2, 2.236, 2.449, 2.646, 2.828, 3};
    int64_t v[BLOCKS];
    c->values[c->count++ % BLOCKS] = value;
    memcpy(v, c->values, sizeof v);
    int64_t middle = median(v, held(c));
    double off = deviation(c, middle);
    /* A few that are far off do not show in it: they count by some part of a step at least. */
    double least = (double)(c == &plain ? middle : plain.level) / VARIES;
    c->level = level_of(c, middle, FAR * (off > least ? off : least));
    c->spread = (int64_t)(1.5 * off / root[held(c)]);
}

/* Steps that were counted for less than what they are now known to have cost are made up for. */
static void take_extra(int recorded, int64_t ns)
{
    circle *c = &extra[recorded];
    take(c, ns);
    if (c->count < KNOWN)
        return;
    int64_t missing = unsure[recorded].steps * c->level - unsure[recorded].cost;
    int64_t most = unsure[recorded].cost * (MISSING_MOST - 1);
    if (missing > 0)
        pp_ring_cost_add(missing < most ? missing : most);
    unsure[recorded].steps = unsure[recorded].cost = 0;
}

static void keep_alone(int recorded, int64_t now, int64_t step)
{
    if (alone.recorded != recorded)
        alone.count = 0;
    alone.recorded = recorded;
    alone.values[alone.count++ % BLOCKS] = step;
    alone.until = now;
    alone.after = 0;
}

static void compare_alone(void)
{
    if (alone.after == 0 && block.since - alone.until >= NEAR)
        alone.count = 0;
    if (alone.count == 0 || ++alone.after < KNOWN)
        return;
    for (unsigned i = 0; i < alone.count && i < BLOCKS; i++)
        take_extra(alone.recorded, alone.values[i] - plain.level);
    alone.count = 0;
}

/* A block is over: what it says. */
static void take_block(int kind, const pp_pace_kernels *k, int64_t now, int64_t step)
{
    bool near = block.since - plain_until < NEAR;
    if (kind == PLAIN) {
        if (!near)
            plain.count = 0;
        take(&plain, step);
        plain_until = now;
        compare_alone();
    } else if (plain.count >= KNOWN && near) {
        take_extra(recorded_now(k), step - plain.level);
    } else {
        keep_alone(recorded_now(k), now, step);
    }
}

/* A marked step's cost: as summed up by its parts, but what the comparison says where that is more,
 * and what it allows at most. On a machine that was slower just before, that may be nothing: some
 * of the parts always count, so that the capture ends. */
static int64_t settle_cost(int64_t own, const pp_pace_kernels *k)
{
    static int64_t records[NO_KERNELS + 1]; /* of a step on average: they come in bursts */
    const int now = recorded_now(k);
    const circle *c = &extra[now];
    records[now] += (k->cost - records[now]) / SMOOTH;
    own += records[now];
    if (c->count < KNOWN) {
        unsure[now].steps++;
        unsure[now].cost += own;
        return own;
    }
    int64_t most = c->level + c->spread;
    int64_t cost = own < c->level ? c->level : own > most ? most : own;
    return cost > own / HIDDEN_MOST ? cost : own / HIDDEN_MOST;
}

static void tell_run(void)
{
    /* Marks that still wait for the GPU are the hook's thread's to write. */
    if (run.steps > 0 && !pp_clock_cuda_behind())
        pp_ring_push(&(pp_mark){.time = run.until,
                                .kind = PP_MARK_COUNTED,
                                .layer = run.steps,
                                .value = run.until - run.since,
                                .epoch = PP_MARK_UNKNOWN,
                                .batch = PP_MARK_UNKNOWN});
    run.steps = 0;
    run.since = run.until;
}

static void end_run(void)
{
    if (run.steps >= BLOCK || run.until - run.since >= BLOCK_NS)
        tell_run();
    run.steps = 0;
    run.since = 0;
}

static void count_plain(int64_t now)
{
    run.until = now;
    if (run.since == 0)
        run.since = now;
    else if (++run.steps && now - run.since >= RUN_NS)
        tell_run();
}

void pp_pace_pause(void)
{
    block.kind = NEITHER;
    end_run();
}

void pp_pace_forget(void)
{
    memset(extra, 0, sizeof extra);
    memset(&alone, 0, sizeof alone);
    memset(unsure, 0, sizeof unsure);
}

bool pp_pace_extra(bool by_calls, int64_t *ret)
{
    const circle *c = &extra[by_calls ? CALLS : OWN];
    bool known = c->count >= KNOWN;
    *ret = known ? c->level : 0;
    return known;
}

static int kind_of(pp_state state, const pp_pace_kernels *k)
{
    if (state == MARKING)
        return MARKED;
    return state == COUNTING && !k->active ? PLAIN : NEITHER;
}

static void begin_block(int kind, int64_t now)
{
    block.kind = kind;
    block.steps = 0;
    block.since = now;
}

void pp_pace_step(pp_state state, const pp_pace_kernels *k)
{
    int kind = kind_of(state, k);
    int64_t own = pp_ring_cost_hold(kind == MARKED);
    int64_t now = pp_now();
    pp_ring_cost_add(kind == MARKED && block.kind == MARKED ? settle_cost(own, k) : own + k->cost);
    if (kind == PLAIN)
        count_plain(now);
    else
        end_run();
    if (kind != block.kind || kind == NEITHER) {
        begin_block(kind, now);
    } else if (++block.steps == BLOCK || now - block.since >= BLOCK_NS) {
        take_block(kind, k, now, (now - block.since) / block.steps);
        begin_block(kind, now);
    }
}
