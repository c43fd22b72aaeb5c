#include "sidecar/agent/monitor.h"

#include "common/array.h"
#include "common/cleanup.h"
#include "common/draw.h"
#include "common/log.h"
#include "common/text.h"
#include "sidecar/agent/sampler.h"
#include "sidecar/agent/window_file.h"
#include "sidecar/agent/windows.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

_Static_assert((int)PP_SAMPLES_METRICS == (int)PP_SAMPLING_METRICS, "one is the other's");

enum {
    AT_ONCE = 4096,
    KEPT_MOST = 160000, /* samples of a window */
    KEPT_BEFORE = 8192, /* of these, from before its capture was seen to run */
    NICE = 10,
};

#define SECOND INT64_C(1000000000)
#define WINDOW (2 * SECOND) /* sampled of a capture: one and a half processors meanwhile */
#define EVERY (30 * SECOND) /* in a long capture */
#define LOOK_EVERY (SECOND / 5)
#define BEAT_EVERY SECOND
#define COME (10 * SECOND)   /* for the sampler to be there and open, once it was started */
#define STOPPED (6 * SECOND) /* that no capture runs meanwhile: it takes 1 to 4 s */
#define START (5 * SECOND)   /* for its first sample: it takes 0.2 s */
#define IDLE (20 * SECOND)   /* of samples without a capture */
#define AHEAD (5 * SECOND)   /* of a capture, for the GPU to come to its first kernel */
#define DRAIN (10 * SECOND)  /* for the last samples of a window */

/* What sampling, joining and solving may take of a processor in all: so much at once, for some
 * windows early on, and a tenth of the time. */
#define CREDIT (20 * SECOND)
#define SHARE 10

/* A sample waits so long at most until it is decoded, which the sampler's guess of its clock has
 * in it; and how far the clocks may drift from one window to the next. */
#define GUESS_LATE (SECOND / 50)
#define DRIFT_PPM 100
#define DRIFT_LEAST (SECOND / 1000)
#define TIME_MAX (INT64_MAX / 4) /* ns: 2043, for a clock that began in 1970 */
#define PERIOD_MOST 1000000      /* ns */

typedef enum phase {
    AWAY, /* there is no sampler yet */
    RESTING,
    STARTING, /* it was asked for samples */
    SAMPLING,
    DRAINING, /* no more are asked for; the last ones, and kernels, are still to come */
    JOINING,
    OVER, /* for good: `why` says it, where it is not the session that is over */
} phase;

/* What the thread works on; nobody else looks at it meanwhile. */
typedef struct work {
    pp_sampling *pm;
    pp_samples_one *samples;
    size_t n_samples;
    pp_sampling_clock clock;
    pp_sampled windows;
    int64_t sampled; /* ns */
    int64_t cpu;     /* ns: what the thread has taken */
    uint64_t failed;
    char why[PP_SAMPLES_TEXT]; /* the latest of these */
} work;

struct pp_monitor {
    char path[PATH_MAX];
    const char *keep; /* the folder for windows' files; NULL: none is kept */
    int64_t period;
    phase phase;
    int64_t since;      /* of the phase */
    int64_t ran_at;     /* since when the capture has been seen to run; 0: not */
    int64_t next_at;    /* when a capture that goes on is sampled again */
    int64_t not_before; /* nothing is: the sampler gave no samples */
    bool awaited;       /* it was seen that none was started yet */
    int64_t started;    /* when one was seen to be, after that; 0: not */
    int64_t begun;      /* when the sampler was there */
    int64_t looked_at, beat_at;
    int64_t joined_at; /* when the latest window was submitted */
    int64_t from;      /* steps that end before it are another capture's, or not sampled */
    int64_t step;      /* of the kernel that was told last */
    int64_t until;     /* kernels after it are another window's; INT64_MAX: still sampling */
    int64_t offset;    /* the least that the sampler told in the window; INT64_MAX: none */
    int64_t realtime;  /* ns: CLOCK_REALTIME less CLOCK_MONOTONIC */
    int64_t begun_at;  /* when the first kernel of its capture began; INT64_MAX: none is told yet */
    bool told;         /* some of the window's kernels were, those before `from` apart */
    bool kernels_here; /* all of them are */
    pp_sampler *sampler;
    size_t samples_max;
    uint64_t windows;
    work work;
    pthread_t thread;
    bool threaded;
    atomic_bool done;
    bool fresh;
    bool finished;
    char why[PP_SAMPLES_TEXT];
};

int pp_monitor_new(const char *ring, int64_t period, const char *keep, pp_monitor **ret,
                   pp_error *err)
{
    PP_CLEANUP_FREE pp_monitor *m = calloc(1, sizeof *m);
    if (!m)
        return pp_error_nomem(err);
    if (!pp_sampler_path(ring, -1, m->path, sizeof m->path))
        return pp_error_set(err, PP_ERR_INVALID, "not the path of a ring: %s", ring);
    m->period = period;
    m->keep = keep;
    *ret = PP_TAKE(m);
    return 0;
}

void pp_monitor_aim(pp_monitor *m, const char *ring, int device)
{
    if (m->phase == AWAY)
        (void)pp_sampler_path(ring, device, m->path, sizeof m->path);
}

const char *pp_monitor_why(const pp_monitor *m)
{
    enum { SOME = 3 };
    const work *w = &m->work;
    const bool in_vain =
        m->phase != JOINING && !w->windows.result && w->failed >= (m->finished ? 1 : SOME);
    return *m->why || !in_vain ? m->why : w->why;
}

static void enter(pp_monitor *m, phase to, int64_t now)
{
    m->phase = to;
    m->since = now;
}

/* What it said of itself goes with the estimates that there are. */
static void give_up(pp_monitor *m, const char *why)
{
    pp_error err = {0};
    (void)snprintf(m->why, sizeof m->why, "%s", why);
    if (m->sampler)
        (void)pp_sampler_set_want(m->sampler, PP_SAMPLES_LEAVE, &err);
    m->phase = OVER;
}

/* ---- joining and solving, in a thread ---- */

static int feed(work *w, pp_error *err)
{
    for (size_t i = 0; i < w->n_samples; i++) {
        pp_sampling_sample s = {.start = w->samples[i].start, .end = w->samples[i].end};
        memcpy(s.values, w->samples[i].values, sizeof s.values);
        if (pp_sampling_add_sample(w->pm, &s, err) < 0)
            return -1;
    }
    return 0;
}

/* Called as the sampler's file is. What is told of the window goes on without its own. */
static void keep_window(const pp_monitor *m, const work *w)
{
    const char *base = pp_text_file_name(m->path);
    char name[NAME_MAX];
    pp_error err = {0};
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
    if (pp_window_file_write(m->keep, name, m->windows, w->pm, &w->clock, &err) < 0)
        pp_warn("sampling", "a window is not kept: %s", err.message);
}

static int join_and_solve(pp_monitor *m, pp_error *err)
{
    work *w = &m->work;
    w->windows.joined = false;
    if (feed(w, err) < 0)
        return -1;
    if (m->keep)
        keep_window(m, w);
    return pp_sampled_add(&w->windows, w->pm, &w->clock, err);
}

static void note_failure(work *w, const char *why)
{
    w->failed++;
    (void)snprintf(w->why, sizeof w->why, "%s", why);
}

/* Without the holes between them. */
static int64_t time_of(const work *w)
{
    int64_t sum = 0;
    for (size_t i = 0; i < w->n_samples; i++) {
        const pp_samples_one *s = &w->samples[i];
        if (s->end > s->start && s->end - s->start <= PERIOD_MOST)
            sum += s->end - s->start;
    }
    return sum;
}

static void *body(void *user)
{
    pp_monitor *m = user;
    pp_error err = {0};
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    if (join_and_solve(m, &err) < 0)
        note_failure(&m->work, err.message);
    else
        m->work.sampled += time_of(&m->work);
    struct timespec cpu; /* of a thread that began with this window */
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    m->work.cpu += cpu.tv_sec * SECOND + cpu.tv_nsec;
    atomic_store(&m->done, true);
    return NULL;
}

/* Near the lag that was found last, else, or once that may have drifted far, by what the sampler
 * saw. The range is kept small: each ms of it takes 10 ms of a processor to scan. Drivers were seen
 * to stamp samples by the host's CLOCK_REALTIME, to a us, and by a clock that drifts, which may
 * pass that. */
static pp_sampling_clock clock_of(const pp_monitor *m, int64_t now)
{
    const pp_sampled *w = &m->work.windows;
    const bool told = m->offset < INT64_MAX;
    const int64_t likely = w->apart ? PP_SAMPLING_NOT_LIKELY : m->realtime;
    const pp_sampling_clock guess = {.lag = GUESS_LATE / 2 - (told ? m->offset : 0),
                                     .range = GUESS_LATE / 2 + DRIFT_LEAST,
                                     .likely = likely,
                                     .stamped = w->stamped};
    const int64_t drift = DRIFT_LEAST + (now - m->joined_at) / 1000000 * DRIFT_PPM;
    const int64_t most = 2 * guess.range; /* what it takes in a capture that goes on */
    if (!w->joined || (told && drift > most))
        return guess;
    return (pp_sampling_clock){.lag = w->lag,
                               .range = drift < most ? drift : most,
                               .likely = likely,
                               .stamped = w->stamped};
}

static void submit(pp_monitor *m, int64_t now)
{
    work *w = &m->work;
    enter(m, JOINING, now);
    m->windows++;
    w->clock = clock_of(m, now);
    m->joined_at = now;
    if (pp_sampler_header(m->sampler)->period <= PERIOD_MOST)
        pp_sampling_set_sampled(w->pm, pp_sampler_header(m->sampler)->period);
    atomic_store(&m->done, false);
    m->threaded = w->n_samples > 0 && pthread_create(&m->thread, NULL, body, m) == 0;
    if (!m->threaded) {
        note_failure(w, w->n_samples > 0 ? "there is no thread to join samples in" : "none came");
        atomic_store(&m->done, true);
    }
}

/* True once the thread has nothing to do. */
static bool collect(pp_monitor *m, bool wait)
{
    if (!wait && !atomic_load(&m->done))
        return false;
    if (m->threaded)
        (void)pthread_join(m->thread, NULL);
    m->threaded = false;
    m->fresh = true;
    m->work.n_samples = 0;
    pp_sampling_clear(m->work.pm);
    return true;
}

void pp_monitor_free(pp_monitor *m, bool leave)
{
    if (!m)
        return;
    if (m->phase == JOINING)
        (void)collect(m, true);
    pp_sampler_free(m->sampler, leave);
    pp_sampling_free(m->work.pm);
    pp_sampled_free(&m->work.windows);
    free(m->work.samples);
    free(m);
}

/* ---- samples ---- */

/* The latest ones only, while none of a capture's kernels are told; none that a window has no room
 * for. */
static int keep(pp_monitor *m, const pp_samples_one *samples, size_t n, pp_error *err)
{
    work *w = &m->work;
    const size_t most = m->ran_at == 0 ? KEPT_BEFORE : KEPT_MOST / 4;
    if ((m->ran_at == 0 || !m->told) && w->n_samples + n > 2 * most) {
        size_t kept = w->n_samples < most ? w->n_samples : most;
        if (kept)
            memmove(w->samples, w->samples + w->n_samples - kept, kept * sizeof *w->samples);
        w->n_samples = kept;
    }
    if (w->n_samples + n > KEPT_MOST)
        return 0;
    if (pp_array_reserve(&w->samples, &m->samples_max, w->n_samples + n, sizeof *samples, err) < 0)
        return -1;
    memcpy(w->samples + w->n_samples, samples, n * sizeof *samples);
    w->n_samples += n;
    return 0;
}

/* It begins anew with each of the sampler's own captures; what it cannot have seen is not
 * believed. */
static void note_offset(pp_monitor *m)
{
    const int64_t offset = pp_sampler_header(m->sampler)->offset;
    if (offset > -TIME_MAX && offset < TIME_MAX && offset < m->offset)
        m->offset = offset;
}

static int take_samples(pp_monitor *m, pp_error *err)
{
    pp_samples_one some[AT_ONCE];
    const bool wanted = m->phase == SAMPLING || m->phase == DRAINING;
    if (wanted)
        note_offset(m);
    for (;;) {
        long n = pp_sampler_take(m->sampler, some, AT_ONCE, err);
        if (n <= 0)
            return (int)n;
        if (wanted && keep(m, some, (size_t)n, err) < 0)
            return -1;
    }
}

/* Fills and copies within the GPU are kernels of the driver's, more or less. */
static pp_sampling_work work_of(const pp_kernels_placed *kernel)
{
    if (!kernel->copy)
        return PP_SAMPLING_KERNEL;
    return kernel->type == PP_COPY_FILL  ? PP_SAMPLING_FILL
           : kernel->type == PP_COPY_D2D ? PP_SAMPLING_COPY
                                         : PP_SAMPLING_COPY_ACROSS;
}

/* One function launched in one shape. */
static uint64_t like_of(const pp_kernels_placed *kernel)
{
    return kernel->name && !kernel->copy ? pp_draw(kernel->shape ^ kernel->name) : 0;
}

void pp_monitor_kernel(void *monitor, const pp_kernels_placed *kernel)
{
    pp_monitor *m = monitor;
    if (m->phase != SAMPLING && m->phase != DRAINING)
        return;
    if (!m->told && kernel->step != m->step)
        pp_sampling_clear(m->work.pm); /* a step that ended before the window */
    m->step = kernel->step;
    m->told = m->told || kernel->start >= m->from;
    if (m->told && m->ran_at != 0 && kernel->start < m->begun_at)
        m->begun_at = kernel->start;
    if (kernel->start > m->until) {
        m->kernels_here = true;
        return;
    }
    const pp_sampling_kernel k = {.start = kernel->start,
                                  .end = kernel->end,
                                  .step = kernel->step,
                                  .layer = kernel->layer,
                                  .phase = kernel->phase,
                                  .work = (uint8_t)work_of(kernel),
                                  .like = like_of(kernel)};
    pp_error err = {0};
    if (pp_sampling_add_kernel(m->work.pm, &k, &err) < 0)
        m->until = kernel->start; /* as many as there may be */
}

void pp_monitor_end(pp_monitor *m)
{
    if (m->phase != SAMPLING && m->phase != DRAINING)
        return;
    if (m->told && m->ran_at != 0) {
        m->kernels_here = true;
    } else { /* it is the end of a capture before, or this one had none */
        pp_sampling_clear(m->work.pm);
        m->told = false;
        m->begun_at = INT64_MAX;
    }
}

/* ---- phases ---- */

static int ask(pp_monitor *m, pp_samples_want want, pp_error *err)
{
    return pp_sampler_set_want(m->sampler, want, err);
}

/* The sampler has chosen its period by now. Kernels are cut by the one that was asked for, however
 * long its own is: what they change within does not get longer with it. */
static int make_pm(pp_monitor *m, pp_error *err)
{
    const int64_t period = pp_sampler_header(m->sampler)->period;
    if (period < m->period || period > PERIOD_MOST)
        return pp_error_set(err, PP_ERR_INVALID, "a sampler with an impossible period");
    if (!m->work.pm)
        m->work.pm = pp_sampling_new(m->period);
    return m->work.pm ? 0 : pp_error_nomem(err);
}

static int start(pp_monitor *m, int64_t now, pp_error *err)
{
    if (make_pm(m, err) < 0)
        return -1;
    m->work.n_samples = 0;
    pp_sampling_clear(m->work.pm);
    m->ran_at = 0;
    m->from = now;
    m->until = m->begun_at = INT64_MAX;
    m->offset = INT64_MAX;
    m->told = m->kernels_here = false;
    enter(m, STARTING, now);
    return ask(m, PP_SAMPLES_SAMPLE, err);
}

/* The capture for which it was asked is over already: the next one is sampled. */
static int withdraw(pp_monitor *m, int64_t now, pp_error *err)
{
    enter(m, RESTING, now);
    return ask(m, PP_SAMPLES_REST, err);
}

/* No samples came, or no capture. */
static int rest(pp_monitor *m, int64_t now, pp_error *err)
{
    m->not_before = now + EVERY;
    return withdraw(m, now, err);
}

static int drain(pp_monitor *m, int64_t now, pp_error *err)
{
    m->until = m->until < now ? m->until : now;
    enter(m, DRAINING, now);
    return ask(m, PP_SAMPLES_REST, err);
}

/* One that was told to leave, or is gone, is the session's before this one: the next one takes its
 * place. One that samples already was left by an agent before this one. */
static int open_sampler(pp_monitor *m, pp_error *err)
{
    if (pp_sampler_open(m->path, &m->sampler, err) < 0)
        return -1;
    if (pp_sampler_header(m->sampler)->want != PP_SAMPLES_LEAVE && !pp_sampler_gone(m->sampler))
        return ask(m, PP_SAMPLES_REST, err);
    pp_sampler_free(m->sampler, true);
    m->sampler = NULL;
    return pp_error_set(err, PP_ERR_NOT_FOUND, "the sampler is leaving");
}

static void find(pp_monitor *m, const pp_monitor_input *in)
{
    pp_error err = {0};
    if (*in->hook && strcmp(in->hook, "started") != 0) {
        give_up(m, in->hook);
        return;
    }
    if (!*in->hook)
        m->since = 0; /* "started" was still the session's before */
    else if (m->since == 0)
        m->since = in->now;
    if (in->now - m->looked_at < LOOK_EVERY)
        return;
    m->looked_at = in->now;
    if (open_sampler(m, &err) == 0) {
        m->begun = in->now;
        enter(m, RESTING, in->now);
    } else if (err.code != PP_ERR_NOT_FOUND)
        give_up(m, err.message);
    else if (m->since != 0 && in->now - m->since > COME)
        give_up(m, "no sampler has come");
}

/* Whether there is leave to sample once more. What the sampler says it took cannot be negative. */
static bool is_affordable(const pp_monitor *m, int64_t now, unsigned parts)
{
    const int64_t sampler = pp_sampler_header(m->sampler)->cpu, n = parts > 1 ? parts : 1;
    return m->work.cpu - CREDIT / n < (now - m->begun) / (SHARE * n) - (sampler > 0 ? sampler : 0);
}

/* A host may be seconds ahead of its GPU: what a capture marks runs then, when the host may have
 * ended it already. */
static bool is_over(const pp_monitor *m, int64_t now)
{
    const bool begun = m->begun_at < now;
    return m->kernels_here || now - (begun ? m->begun_at : m->ran_at) >= (begun ? WINDOW : AHEAD);
}

/* The sampler is there, and not ready yet. */
static bool is_opening(const pp_monitor *m, int64_t now)
{
    return m->phase == RESTING && pp_sampler_header(m->sampler)->state == PP_SAMPLES_OPENING &&
           now - m->since < COME;
}

static int go_on(pp_monitor *m, const pp_monitor_input *in, pp_error *err)
{
    const pp_samples_header *h = pp_sampler_header(m->sampler);
    const bool waits = m->phase == STARTING || (m->phase == SAMPLING && m->ran_at == 0);
    if (waits && !in->wanted)
        return withdraw(m, in->now, err);
    switch (m->phase) {
    case RESTING:
        if (is_opening(m, in->now)) /* it may still say why it cannot */
            return 0;
        if (in->over) {
            enter(m, OVER, in->now);
            return ask(m, PP_SAMPLES_LEAVE, err);
        }
        if (h->state != PP_SAMPLES_RESTING || !in->wanted || in->now < m->not_before ||
            (in->running && in->now < m->next_at) || !is_affordable(m, in->now, in->parts))
            return 0;
        return start(m, in->now, err);
    case STARTING:
        if (h->state == PP_SAMPLES_SAMPLING)
            enter(m, SAMPLING, in->now);
        return in->now - m->since > START ? rest(m, in->now, err) : 0;
    case SAMPLING:
        if (m->ran_at == 0 && in->running)
            m->ran_at = in->now;
        if (m->ran_at == 0)
            return in->now - m->since > IDLE ? rest(m, in->now, err) : 0;
        return is_over(m, in->now) ? drain(m, in->now, err) : 0;
    case DRAINING:
        if (in->now - m->since > DRAIN || (h->state == PP_SAMPLES_RESTING && m->kernels_here))
            submit(m, in->now);
        return 0;
    case JOINING:
        if (collect(m, false)) {
            m->next_at = in->now + EVERY;
            enter(m, RESTING, in->now);
        }
        return 0;
    default:
        return 0;
    }
}

static int attend(pp_monitor *m, const pp_monitor_input *in, pp_error *err)
{
    /* Asked before reading: what it wrote before it went is there now. */
    bool gone = pp_sampler_gone(m->sampler);
    if (pp_sampler_refresh(m->sampler, err) < 0 || take_samples(m, err) < 0)
        return -1;
    const pp_samples_header *h = pp_sampler_header(m->sampler);
    if (h->state == PP_SAMPLES_FAILED)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "%s", h->why);
    if (gone)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "the sampler has ended");
    if (in->now - m->beat_at >= BEAT_EVERY) {
        m->beat_at = in->now;
        if (pp_sampler_beat(m->sampler, err) < 0)
            return -1;
    }
    return go_on(m, in, err);
}

/* One that an agent before this one has seen may be gone for good: no capture is stopped for it. */
static void note_start(pp_monitor *m, bool started, int64_t now)
{
    m->awaited = m->awaited || !started;
    if (!started)
        m->started = 0;
    else if (m->awaited && m->started == 0)
        m->started = now;
}

pp_monitor_advice pp_monitor_poll(pp_monitor *m, const pp_monitor_input *in)
{
    pp_error err = {0};
    const bool started = strcmp(in->hook, "started") == 0;
    note_start(m, started, in->now);
    m->realtime = in->realtime;
    if (m->phase == AWAY)
        find(m, in);
    if (m->phase != AWAY && m->phase != OVER && attend(m, in, &err) < 0 &&
        (m->phase != JOINING || collect(m, false))) /* else the next time finds it too */
        give_up(m, err.message);
    /* Before the hook has decided anything there is nothing to wait for. */
    if (m->phase == AWAY ? !started : !is_opening(m, in->now))
        return m->phase == STARTING ? PP_MONITOR_WAIT : PP_MONITOR_GO;
    if (m->started == 0)
        return PP_MONITOR_WAIT;
    return in->now - m->started < STOPPED ? PP_MONITOR_STOP : PP_MONITOR_GO;
}

/* ---- out ---- */

void pp_monitor_finish(pp_monitor *m)
{
    pp_error err = {0};
    m->finished = true;
    const bool open = (m->phase == SAMPLING || m->phase == DRAINING) && m->ran_at != 0;
    if (open && pp_sampler_refresh(m->sampler, &err) == 0 && take_samples(m, &err) == 0)
        submit(m, m->since);
    if (m->phase == JOINING)
        (void)collect(m, true);
    if (m->phase != OVER && m->phase != AWAY)
        (void)rest(m, m->since, &err);
}

bool pp_monitor_take(pp_monitor *m, pp_monitor_estimates *ret)
{
    const work *w = &m->work;
    if (!m->fresh || m->phase == JOINING || !w->windows.result || !m->sampler)
        return false;
    m->fresh = false;
    *ret = (pp_monitor_estimates){.result = w->windows.result,
                                  .sampler = pp_sampler_header(m->sampler),
                                  .windows = m->windows,
                                  .failed = w->failed,
                                  .failure = w->why,
                                  .sampled = w->sampled,
                                  .lag_guess = w->clock.lag,
                                  .lag = w->windows.lag,
                                  .lag_stderr = w->windows.lag_stderr};
    return true;
}
