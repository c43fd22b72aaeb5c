/* The session's state machine. Words are in session_conditions.c. */
#include "controller/session/session_turn.h"

#include "common/time.h"
#include "controller/session/session_conditions.h"
#include "controller/session/session_cover.h"
#include "controller/session/session_query.h"
#include "controller/session/session_stalled.h"
#include "controller/session/session_targets.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)
/* Replays bring a batch every few seconds: an agent that is not heard of, though it could be, has
 * none under way. */
#define REPLAYING_HEARD_WITHIN (30 * SECOND)

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool has_whole_gpu(const pp_session_pod *pod)
{
    for (size_t i = 0; i < pod->n_gpus; i++) {
        if (strncmp(pod->gpus[i], "MIG-", 4) != 0)
            return true;
    }
    return false;
}

/* Its agent was there, and is away for longer than passes by itself, though its training runs. */
static bool is_lost(const pp_session_turn *turn, const pp_session_pod *pod)
{
    const int64_t heard = later(pod->heard_to_ns, pod->last_batch_ns);
    const int64_t since = later(heard, turn->obs->serving_since_ns);
    return heard && pod->running && !pod->finished && !pod->connected && !pod->trainer_waits &&
           turn->obs->now_ns >= since + turn->opt.stalled_ns;
}

static void tally_injected(pp_session_turn *turn, const pp_session_pod *pod)
{
    pp_session_tally *t = &turn->tally;
    const pp_session *s = turn->session;
    t->injected++;
    t->running += !pod->finished && pod->running;
    if (!pod->finished && pod->running && !t->first_running)
        t->first_running = pod;
    if (!pod->finished && !pod->running && !t->first_pending)
        t->first_pending = pod;
    if (is_lost(turn, pod) && !t->first_lost)
        t->first_lost = pod;
    t->awaiting += !pod->finished && pod->running && pod->awaits_agent;
    t->connected += pod->connected;
    t->reporting += pod->last_batch_ns > 0;
    bool denied = pod->pm_why && *pod->pm_why;
    t->pm += pod->last_batch_ns > 0 && pod->pm;
    if (pod->last_batch_ns > 0 && !pod->pm && denied && t->unsampled++ == 0)
        t->first_unsampled = pod;
    t->solving += turn->obs->sampling_asked && pod->connected && !denied;
    t->replayed += pod->last_batch_ns > 0 && pod->replays > 0;
    if (pod->last_batch_ns > 0 && pod->replays == 0 && pod->isolated && *pod->isolated &&
        t->unreplayed++ == 0)
        t->first_unreplayed = pod;
    t->with_gpu += pod->last_batch_ns > 0 && pod->n_gpus > 0;
    t->with_whole += pod->last_batch_ns > 0 && has_whole_gpu(pod);
    /* The end of a container is its node's stamp: one that lies ahead tells nothing. */
    const int64_t finished_ns = pod->finished_ns <= turn->obs->now_ns ? pod->finished_ns : 0;
    t->quiet_since = later(t->quiet_since, later(pod->last_batch_ns, finished_ns));
    if (pod->finished)
        return;
    t->unfinished++;
    t->undrained += pod->open_capture;
    t->replaying += pod->replaying &&
                    turn->obs->now_ns < later(pod->last_batch_ns, turn->obs->serving_since_ns) +
                                            REPLAYING_HEARD_WITHIN;
    t->below_max += s->steps_max > 0 && pod->steps < s->steps_max;
}

/* Whether it may have its own long pause between two tries, for all that is known. */
static bool may_pause(const pp_session_owner *owner)
{
    return owner->kind == PP_OWNER_JOB && owner->state == PP_OWNER_UNKNOWN;
}

static void tally_owners(pp_session_turn *turn)
{
    const pp_session_observation *obs = turn->obs;
    for (size_t i = 0; i < obs->n_owners; i++) {
        const pp_session_owner *o = &obs->owners[i];
        if (o->state == PP_OWNER_MAKES_PODS || o->state == PP_OWNER_ASKING)
            turn->tally.maker = o;
        else if (o->state != PP_OWNER_DONE && (!turn->tally.unknown || may_pause(o)))
            turn->tally.unknown = o;
    }
}

static void tally(pp_session_turn *turn)
{
    tally_owners(turn);
    const pp_session_observation *obs = turn->obs;
    turn->tally.quiet_since = later(obs->stats.last_batch_ns, obs->serving_since_ns);
    for (size_t i = 0; i < obs->n_pods; i++) {
        if (!pp_session_pod_counts(turn->session, &obs->pods[i]))
            continue;
        turn->tally.matched++;
        if (pp_session_pod_injected(turn->session, &obs->pods[i]))
            tally_injected(turn, &obs->pods[i]);
        else
            turn->tally.waiting += obs->pods[i].session_uid != NULL;
    }
}

/* As the status says it. */
static int64_t previous_pause(const pp_session *s)
{
    const char *text = pp_json_get_string(s->status, "progress", "paused", NULL);
    int64_t ns = 0;
    return text && pp_duration_parse(text, &ns, NULL) == 0 ? ns : 0;
}

/* How much later a session ends where the training was paused for so long: what pods say of that is
 * theirs to say, so no later than the spec lets it be. */
static int64_t moved_by(const pp_session *s, int64_t paused)
{
    return paused < s->max_pause_ns ? paused : s->max_pause_ns;
}

/* When the session came, on the operator's clock as far as that can tell: the API server's stamp,
 * but never in the future. */
static int64_t created(const pp_session_turn *turn)
{
    return earlier(turn->session->created_ns, turn->obs->now_ns);
}

/* What a pod says of its first step moves the beginning neither before the session nor past now,
 * and a beginning that was told moves forward no more. */
static int64_t beginning(const pp_session_turn *turn)
{
    const int64_t told = turn->session->start_ns, first = turn->obs->stats.first_step_ns;
    if (!first)
        return told;
    const int64_t start = later(earlier(first, turn->obs->now_ns), created(turn));
    return told && told < start ? told : start;
}

/* The points in time that the status remembers, brought up to now. While layers are replayed
 * nothing is sampled: the end is later by that. */
static void carry_times(pp_session_turn *turn)
{
    const pp_session *s = turn->session;
    pp_session_decision *d = turn->to;
    d->start_ns = beginning(turn);
    d->sampling_end_ns = s->sampling_end_ns;
    d->completion_ns = s->completion_ns;
    d->suspended_at_ns = s->suspended_at_ns;
    memcpy(d->pauses, s->pauses, sizeof d->pauses);
    d->n_pauses = s->n_pauses;
    /* Decided once: a session that was accepted before stays, whatever the setting becomes. */
    d->expires_after_s = s->has_status ? s->expires_after_s : turn->obs->expire_s;
    d->deadline_at_ns = s->deadline_at_ns ? s->deadline_at_ns : created(turn) + s->deadline_ns;
    d->ends_at_ns = s->ends_at_ns;
    const int64_t before = previous_pause(s);
    if (pp_session_asks_replays(s))
        d->paused_ns = later(before, turn->obs->stats.paused_ns / MILLISECOND * MILLISECOND);
    if (d->ends_at_ns)
        d->ends_at_ns += moved_by(s, d->paused_ns) - moved_by(s, before);
    else if (d->start_ns)
        d->ends_at_ns = d->start_ns + s->duration_ns + moved_by(s, d->paused_ns);
}

/* Replays that are under way are let end: how long they pause the training is known once they have.
 */
static bool is_held(const pp_session_turn *turn)
{
    const pp_session_decision *d = turn->to;
    return turn->tally.replaying > 0 &&
           turn->obs->now_ns <
               d->ends_at_ns - moved_by(turn->session, d->paused_ns) + turn->session->max_pause_ns;
}

/* Of more than there is room for the last ones count as one, with what was between them. */
static void remember_pause(pp_session_decision *d, int64_t from, int64_t to)
{
    if (d->n_pauses < PP_SESSION_MAX_PAUSES)
        d->pauses[d->n_pauses++] = (pp_session_span){from, to};
    else
        d->pauses[d->n_pauses - 1].to_ns = to;
}

/* Time in suspension counts neither for the duration nor for the deadline. */
static void resume(pp_session_turn *turn)
{
    pp_session_decision *d = turn->to;
    if (!d->suspended_at_ns)
        return;
    int64_t now = turn->obs->now_ns;
    if (now > d->suspended_at_ns)
        d->deadline_at_ns += now - d->suspended_at_ns;
    int64_t since = later(d->suspended_at_ns, d->start_ns);
    if (d->ends_at_ns && now > since) {
        d->ends_at_ns += now - since;
        remember_pause(d, since, now);
    }
    d->suspended_at_ns = 0;
}

__attribute__((format(printf, 4, 5))) static pp_session_phase
end(pp_session_turn *turn, pp_session_phase phase, const char *reason, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)snprintf(turn->end_reason, sizeof turn->end_reason, "%s", reason);
    (void)vsnprintf(turn->end_message, sizeof turn->end_message, fmt, args);
    va_end(args);
    if (phase == PP_SESSION_FINISHING)
        turn->to->sampling_end_ns = turn->obs->now_ns;
    else
        turn->to->completion_ns = turn->obs->now_ns;
    return phase;
}

static pp_session_phase fail_at_deadline(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    char deadline[64];
    pp_duration_format(turn->session->deadline_ns, deadline, sizeof deadline);
    if (t->matched == 0)
        return end(turn, PP_SESSION_FAILED, "NoMatchingPods",
                   "No pod matched the selector within the deadline of %s; compare spec.selector "
                   "with the pods' labels",
                   deadline);
    if (t->injected == 0)
        return end(turn, PP_SESSION_FAILED, "NoPodInjected",
                   "None of the %lld matching pods carried the hook within the deadline of %s; the "
                   "Injected condition says why",
                   (long long)t->matched, deadline);
    return end(turn, PP_SESSION_FAILED, "NoStepSampled",
               "No injected pod reported a training step within the deadline of %s; look at the "
               "log of the pod's container precisionprobe-agent",
               deadline);
}

/* Whether everybody who could still bring data is gone, and nobody makes another pod: for as long
 * as that takes where it cannot be known. */
static bool all_gone(const pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    int64_t wait = turn->opt.grace_ns;
    if (t->unknown)
        wait = may_pause(t->unknown) ? turn->opt.job_ns : turn->opt.owner_ns;
    return t->unfinished == 0 && !t->maker && turn->obs->now_ns >= t->quiet_since + wait;
}

static pp_session_phase step_active(pp_session_turn *turn)
{
    const pp_session *s = turn->session;
    const pp_session_tally *t = &turn->tally;
    pp_session_decision *d = turn->to;
    int64_t now = turn->obs->now_ns;
    resume(turn);
    if (!d->start_ns)
        return now >= d->deadline_at_ns ? fail_at_deadline(turn) : PP_SESSION_PENDING;
    turn->held = now >= d->ends_at_ns && now < d->deadline_at_ns && is_held(turn);
    if (now >= d->ends_at_ns && !turn->held)
        return end(turn, PP_SESSION_FINISHING, "DurationReached", "The duration is over");
    if (now >= d->deadline_at_ns)
        return end(turn, PP_SESSION_FINISHING, "DeadlineReached",
                   "The deadline came before the duration was over");
    if (s->steps_max > 0 && t->unfinished > 0 && t->below_max == 0)
        return end(turn, PP_SESSION_FINISHING, "StepsReached", "Every pod has sampled %lld steps",
                   (long long)s->steps_max);
    /* Without the store the pods' last batches cannot be seen: "gone" would be a guess. */
    if (!turn->obs->store_error && all_gone(turn))
        return end(turn, PP_SESSION_FINISHING, "PodsFinished", "Every profiled pod has finished");
    return PP_SESSION_COLLECTING;
}

static void describe_timed(const pp_session_stats *st, char *out, size_t size)
{
    (void)snprintf(out, size, "%lld layer%s timed in %lld phase%s on %lld pod%s",
                   (long long)st->final_layers, st->final_layers == 1 ? "" : "s",
                   (long long)st->final_phases, st->final_phases == 1 ? "" : "s",
                   (long long)st->final_pods, st->final_pods == 1 ? "" : "s");
}

/* What was measured is told all the same. */
static pp_session_phase succeed(pp_session_turn *turn, const char *reason, const char *what)
{
    const char *late = turn->late ? turn->late : "";
    const char *note = turn->late ? "; finishing took too long, and went without " : "";
    char why[320];
    if (!pp_session_is_complete(turn, why, sizeof why))
        return end(turn, PP_SESSION_FAILED, "Incomplete", "%s. What was measured is kept: %s%s%s",
                   why, what, note, late);
    return end(turn, PP_SESSION_SUCCEEDED, reason, "%s%s%s", what, note, late);
}

static pp_session_phase conclude(pp_session_turn *turn)
{
    const pp_session_stats *st = &turn->obs->stats;
    char timed[160], what[320];
    describe_timed(st, timed, sizeof timed);
    if (st->final_layers == 0)
        return end(turn, PP_SESSION_FAILED, "NoLayerTimed",
                   "Steps were sampled, but no layer was timed in them; look at spec.layers and at "
                   "the log of the pod's container precisionprobe-agent");
    if (st->final_job_means > 0 || st->final_own > 0) {
        (void)snprintf(what, sizeof what,
                       "%s; %lld metric values of their own, %lld of groups of layers", timed,
                       (long long)st->final_own, (long long)st->final_groups);
        return succeed(turn, "Completed", what);
    }
    if (turn->obs->prometheus_off) {
        (void)snprintf(what, sizeof what,
                       "%s; no Prometheus is configured, so there are no metrics", timed);
        return succeed(turn, "TimedOnly", what);
    }
    if (turn->tally.reporting > 0 && turn->tally.with_gpu == 0)
        return end(turn, PP_SESSION_FAILED, "NoGPU",
                   "The layers are timed, but the training processes named no GPU, so there is no "
                   "metric to attribute; request one in the container's resources");
    if (turn->obs->prometheus_error)
        return end(turn, PP_SESSION_FAILED, "PrometheusUnavailable",
                   "The layers are timed, but Prometheus cannot be asked: %s",
                   turn->obs->prometheus_error);
    if (turn->tally.with_gpu > 0 && turn->tally.with_whole == 0)
        return end(turn, PP_SESSION_FAILED, "MIGInstance",
                   "The layers are timed, but there is no metric: " PP_SESSION_MIG_HINT);
    return end(turn, PP_SESSION_FAILED, "NoMetrics",
               "The layers are timed, but Prometheus had no sample of their "
               "GPUs; " PP_SESSION_NO_SAMPLE_HINT);
}

/* What PM sampling tells of a capture comes after its last batch, once it is solved. */
static bool solved(const pp_session_turn *turn)
{
    int64_t since = later(turn->to->sampling_end_ns, turn->tally.quiet_since);
    return turn->tally.solving == 0 || turn->obs->now_ns >= since + turn->opt.pm_ns;
}

/* An agent that went keeps what it has, and brings it once it is back. */
static bool more_may_come(const pp_session_turn *turn)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        if (pp_session_may_bring_more(turn, &turn->obs->pods[i]))
            return true;
    }
    return false;
}

/* The last batches of captures that were cut off by the end of sampling. */
static bool drained(const pp_session_turn *turn)
{
    int64_t since = later(turn->to->sampling_end_ns, turn->obs->serving_since_ns);
    if (!solved(turn))
        return false;
    return turn->obs->now_ns >= since + turn->opt.drain_ns ||
           (turn->tally.undrained == 0 && !more_may_come(turn));
}

/* When what is missing is not waited for any more, by the operator's clock; agents find one that
 * has just come back. */
static int64_t finish_by(const pp_session_turn *turn)
{
    int64_t ended = earlier(turn->to->sampling_end_ns, turn->obs->now_ns);
    return later(ended + turn->opt.finish_ns, turn->obs->serving_since_ns + turn->opt.drain_ns);
}

/* The time for the last solution is over, too. */
static pp_session_phase give_up_finishing(pp_session_turn *turn)
{
    const pp_session_observation *obs = turn->obs;
    turn->late = "the values of the last data";
    if (obs->store_error)
        return end(turn, PP_SESSION_FAILED, "StoreUnavailable",
                   "Finishing took too long: the store cannot be reached, and with it went what "
                   "the agents still had: %s",
                   obs->store_error);
    if (obs->stats.final_layers > 0)
        return conclude(turn);
    return end(turn, PP_SESSION_FAILED, "FinishingTimedOut",
               "Finishing took too long: the layers' values were not worked out; what was measured "
               "is in the store");
}

static pp_session_phase finalise(pp_session_turn *turn)
{
    if (turn->obs->solve_error && turn->obs->solve_failures >= turn->opt.solve_tries)
        return end(turn, PP_SESSION_FAILED, "AttributionFailed",
                   "The layers' values could not be worked out or stored, %u times in a row; "
                   "what was measured is in the store: %s",
                   turn->obs->solve_failures, turn->obs->solve_error);
    turn->to->finalise = true;
    return PP_SESSION_FINISHING;
}

static pp_session_phase step_finishing(pp_session_turn *turn)
{
    const pp_session_stats *st = &turn->obs->stats;
    int64_t by = finish_by(turn);
    bool late = turn->obs->now_ns >= by;
    turn->to->suspended_at_ns = 0;
    if (turn->obs->now_ns >= by + turn->opt.solve_ns)
        return give_up_finishing(turn);
    if (turn->obs->store_error)
        return PP_SESSION_FINISHING;
    bool brought = drained(turn);
    if (!late && (!brought || !st->samples_complete))
        return PP_SESSION_FINISHING;
    if (!brought)
        turn->late = "the last batches of an agent";
    else if (!st->samples_complete)
        turn->late = "samples that Prometheus did not give";
    /* A store that holds nothing of it has nothing to solve. */
    if ((!st->final_written || turn->obs->under_way) && st->last_batch_ns)
        return finalise(turn);
    return conclude(turn);
}

static pp_session_phase next_phase(pp_session_turn *turn)
{
    const pp_session *s = turn->session;
    if (pp_session_phase_final(turn->from))
        return turn->from;
    if (s->invalid.code != PP_OK)
        return end(turn, PP_SESSION_FAILED, pp_session_invalid_reason(s), "%s%s%s",
                   s->invalid.field, s->invalid.field[0] ? " " : "", s->invalid.message);
    if (turn->from == PP_SESSION_FINISHING)
        return step_finishing(turn);
    if (!s->suspend)
        return step_active(turn);
    if (!turn->to->suspended_at_ns)
        turn->to->suspended_at_ns = turn->obs->now_ns;
    return PP_SESSION_SUSPENDED;
}

/* How long to sleep when nothing happens: up to the next point in time that changes something. */
static int64_t requeue_after(const pp_session_turn *turn)
{
    const pp_session_decision *d = turn->to;
    int64_t now = turn->obs->now_ns;
    if (d->phase == PP_SESSION_FINISHING)
        return turn->opt.poll_ns;
    if (d->phase == PP_SESSION_SUSPENDED || pp_session_phase_final(d->phase))
        return 0;
    int64_t at = d->deadline_at_ns;
    if (d->ends_at_ns && d->ends_at_ns < at && !turn->held)
        at = d->ends_at_ns;
    bool awaited = d->ends_at_ns && d->ends_at_ns <= now; /* it is over but for what still runs */
    int64_t every = awaited ? turn->opt.poll_ns : turn->opt.watch_ns;
    if (d->phase == PP_SESSION_COLLECTING && at > now + every)
        at = now + every;
    int64_t stalled_at = pp_session_stalled_at(turn);
    if (stalled_at && stalled_at < at)
        at = stalled_at;
    return at > now ? at - now : 1;
}

static int64_t previous_count(const pp_session *s, const char *name)
{
    return json_integer_value(pp_json_get(s->status, "counts", name, NULL));
}

static double previous_percent(const pp_session *s, const char *name)
{
    const json_t *value = pp_json_get(s->status, "counts", name, NULL);
    return value ? json_number_value(value) / 100 : (double)NAN;
}

/* As the status says them: what the store holds is not known. */
static void recall_counts(const pp_session *s, pp_session_stats *ret)
{
    ret->layers = previous_count(s, "layers");
    ret->steps = previous_count(s, "steps");
    ret->counted_steps = previous_count(s, "countedSteps");
    ret->events = previous_count(s, "events");
    ret->dropped = previous_count(s, "dropped");
    ret->samples_joined = previous_count(s, "samplesJoined");
    ret->samples_stored = previous_count(s, "samplesStored");
    ret->samples_deduplicated = previous_count(s, "samplesDeduplicated");
    ret->samples_error = previous_percent(s, "sampleErrorPercent");
    ret->samples_spread = previous_percent(s, "sampleSpreadPercent");
}

static int64_t previous_place(const pp_session *s, const char *name)
{
    const json_t *value = pp_json_get(s->status, "progress", name, NULL);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Pods of a finished Job are deleted in the end; what was counted stays counted. */
static void count(pp_session_turn *turn)
{
    const pp_session *s = turn->session;
    pp_session_decision *d = turn->to;
    d->stats = turn->obs->stats;
    if (turn->obs->unread)
        recall_counts(s, &d->stats);
    d->pods_matched = turn->tally.matched;
    d->pods_injected = turn->tally.injected;
    d->pods_reporting = turn->tally.reporting;
    if (!d->start_ns)
        return;
    d->pods_matched = later(d->pods_matched, previous_count(s, "podsMatched"));
    d->pods_injected = later(d->pods_injected, previous_count(s, "podsInjected"));
    d->pods_reporting = later(d->pods_reporting, previous_count(s, "podsReporting"));
}

static void measure_progress(pp_session_turn *turn)
{
    pp_session_decision *d = turn->to;
    const pp_session_observation *obs = turn->obs;
    d->duration_ns = turn->session->duration_ns;
    d->epoch = obs->unread ? previous_place(turn->session, "epoch") : -1;
    d->batch = obs->unread ? previous_place(turn->session, "batch") : -1;
    for (size_t i = 0; i < obs->n_pods; i++) {
        const pp_session_pod *pod = &obs->pods[i];
        if (pod->epoch < d->epoch || (pod->epoch == d->epoch && pod->batch <= d->batch))
            continue;
        d->epoch = pod->epoch;
        d->batch = pod->batch;
    }
    if (!d->start_ns)
        return;
    int64_t at = obs->now_ns;
    if (d->sampling_end_ns)
        at = d->sampling_end_ns;
    else if (d->suspended_at_ns)
        at = d->suspended_at_ns;
    int64_t left = d->ends_at_ns - at;
    d->sampled_ns = left > 0 ? later(d->duration_ns - left, 0) : d->duration_ns;
}

static pp_session_options with_defaults(const pp_session_options *opt)
{
    pp_session_options o = opt ? *opt : (pp_session_options){0};
    o.grace_ns = o.grace_ns ? o.grace_ns : 10 * SECOND;
    o.owner_ns = o.owner_ns ? o.owner_ns : 60 * SECOND;
    o.job_ns = o.job_ns ? o.job_ns : 360 * SECOND;
    o.drain_ns = o.drain_ns ? o.drain_ns : 60 * SECOND;
    o.pm_ns = o.pm_ns ? o.pm_ns : 10 * SECOND;
    o.poll_ns = o.poll_ns ? o.poll_ns : 2 * SECOND;
    o.watch_ns = o.watch_ns ? o.watch_ns : 5 * SECOND;
    o.finish_ns = o.finish_ns ? o.finish_ns : 900 * SECOND;
    o.solve_ns = o.solve_ns ? o.solve_ns : 600 * SECOND;
    o.stalled_ns = o.stalled_ns ? o.stalled_ns : PP_SESSION_STALLED_NS;
    o.solve_tries = o.solve_tries ? o.solve_tries : 8;
    return o;
}

int pp_session_step(const pp_session_observation *obs, const pp_session_options *opt,
                    pp_session_decision *ret, pp_error *err)
{
    const pp_session *s = obs->session;
    pp_session_turn turn = {.obs = obs, .session = s, .opt = with_defaults(opt), .to = ret};
    *ret = (pp_session_decision){.generation = s->generation};
    (void)snprintf(ret->session_uid, sizeof ret->session_uid, "%s", s->uid);
    turn.from = s->has_status ? s->phase : PP_SESSION_PENDING;
    tally(&turn);
    carry_times(&turn);
    ret->phase = next_phase(&turn);
    ret->frozen = pp_session_phase_final(turn.from);

    bool active = ret->phase == PP_SESSION_PENDING || ret->phase == PP_SESSION_COLLECTING;
    ret->sampling = active && !s->deleting;
    ret->collect = ret->start_ns && !pp_session_phase_final(ret->phase);
    ret->ask_owners = active && turn.tally.unfinished == 0 && obs->n_owners > 0;
    if (ret->frozen)
        return 0;
    count(&turn);
    measure_progress(&turn);
    pp_session_set_conditions(&turn);
    ret->requeue_ns = requeue_after(&turn);
    if (pp_session_list_targets(&turn, err) < 0) {
        pp_session_decision_done(ret);
        return -1;
    }
    return 0;
}

void pp_session_decision_done(pp_session_decision *decision)
{
    free(decision->targets);
    decision->targets = NULL;
    decision->n_targets = 0;
}
