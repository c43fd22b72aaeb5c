#include "operator/pods/admission.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/announced.h"
#include "estimate/replay/dwell_length.h"
#include "operator/cache/limits.h"
#include "operator/cache/watches.h"
#include "operator/installation/addresses.h"
#include "operator/installation/replicas.h"
#include "operator/pods/stuck.h"
#include "operator/state/pending_call.h"
#include "operator/state/solve_options.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/*
 * A pod is about to be created. Its session is the one that the index of the watched sessions has
 * for it. A session that is about to be created passes here too, before the watch has it: a pod
 * that would be that session's waits for it, so that a session and a pod applied in one file meet;
 * no other pod waits. The other replicas hear of it first (replicas.h). An API server that is busy
 * may bring it late: where the watch has not, the session is asked for by its name. Where there is
 * no session, a pod that asks for it by its label, or its namespace's, gets a hook that waits for
 * sessions. A pod that cannot be injected is let through as it is; nothing is written on a review's
 * word: the session's condition and Events tell of the pod once the watch has it (explain.h).
 */

/* Of a pod, for its announced session; less than the webhook's timeout. */
static const int64_t WAIT_NS = INT64_C(1500000000);
/* How long the watch alone is waited for; then between two questions. */
static const int64_t ASK_AFTER_NS = INT64_C(100000000);
static const int64_t ASK_AGAIN_NS = INT64_C(300000000);
static const int64_t MILLISECOND = 1000000;

enum {
    MAX_QUESTIONS = 16,
    MAX_WAITING = 64 << 20, /* bytes of the pods that wait; further ones are decided at once */
};

/** A review that waits for a session that is announced. */
typedef struct waiting {
    pp_http_id id;
    json_t *pod;
    size_t bytes; /* of the pod */
    char ns[64];
    bool labelled;
    int64_t until_ns;
    int64_t ask_ns; /* when to ask for the session */
    struct waiting *prev, *next;
} waiting;

typedef struct pp_admission {
    pp_operator *op;
    pp_announced *announced;
    waiting *waiting;
    size_t waiting_bytes;
    unsigned questions; /* under way */
    uv_timer_t timer;   /* of the first that has waited long enough */
} pp_admission;

static void answer_none(pp_operator *op, pp_http_id id)
{
    pp_http_admission_respond(op->server, id, NULL, NULL);
}

/* One that is to be named yet gives its prefix. */
static const char *name_of(const json_t *pod)
{
    const char *name = pp_json_get_string(pod, "metadata", "name", NULL);
    if (!name)
        name = pp_json_get_string(pod, "metadata", "generateName", NULL);
    return name ? name : "";
}

/* session NULL: none matches. */
static void patch_pod(pp_operator *op, pp_http_id id, const char *ns, const pp_session *session,
                      const json_t *pod)
{
    pp_inject_options options;
    pp_admission_options(op, ns, &options);
    options.unprobed = pp_stuck_unprobed(op, ns, pod);
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal refusal = {0};
    pp_error err = {0};
    int rc = pp_inject_patch(pod, session, &options, &patch, &refusal, &err);
    pp_strings warnings = {0};
    if (rc < 0) {
        pp_warn(session ? session->name : NULL, "pod %s cannot be injected: %s", name_of(pod),
                err.message);
    } else if (rc == PP_INJECT_REFUSED) {
        char text[512];
        (void)snprintf(text, sizeof text, "precisionprobe: not injected%s%s: %s",
                       session ? " for session " : "", session ? session->name : "",
                       refusal.message);
        (void)pp_strings_add(&warnings, text, NULL);
        pp_meter_add(op->meters.injection_refused, 1);
    } else if (rc == PP_INJECT_PATCHED) {
        pp_meter_add(op->meters.injected, 1);
    }
    pp_http_admission_respond(op->server, id, json_array_size(patch) ? patch : NULL, &warnings);
    pp_strings_free(&warnings);
}

static const json_t *labels_of(const json_t *pod)
{
    return pp_json_get(pod, "metadata", "labels", NULL);
}

/* Answers at once: for the session that has the pod, for none where the pod asks for the hook. */
static void decide(pp_operator *op, pp_http_id id, const char *ns, const pp_session *match,
                   const json_t *pod, bool labelled)
{
    if (match || labelled || pp_inject_wanted(labels_of(pod)))
        patch_pod(op, id, ns, match, pod);
    else
        answer_none(op, id);
}

/* ---- pods that wait ---- */

static void stop_waiting(pp_admission *admission, waiting *w)
{
    DL_DELETE(admission->waiting, w);
    admission->waiting_bytes -= w->bytes;
    json_decref(w->pod);
    free(w);
}

/* ---- asking for the session ---- */

static void question_release(void *call)
{
    pp_operator *op = ((pp_pending_call *)call)->op;
    if (op->admission)
        op->admission->questions--;
}

/* For those that wait for it. */
static void take_session(pp_admission *admission, const pp_session *session)
{
    waiting *w;
    waiting *next;
    if (!pp_session_live(session))
        return;
    DL_FOREACH_SAFE(admission->waiting, w, next)
    {
        if (strcmp(w->ns, session->namespace_) != 0 ||
            !pp_selector_matches(&session->selector, labels_of(w->pod)))
            continue;
        decide(admission->op, w->id, w->ns, session, w->pod, w->labelled);
        stop_waiting(admission, w);
    }
}

/* Not found: it is not stored yet. */
static void on_session_answer(void *user, json_t *object, const pp_error *error)
{
    pp_operator *op = ((pp_pending_call *)user)->op;
    pp_session *session = error ? NULL : pp_watches_decode_session(op, object, NULL);
    if (session && op->admission && !op->stopping)
        take_session(op->admission, session);
    (void)pp_session_free(session);
    pp_pending_call_free(user);
}

static void ask(pp_admission *admission, const char *ns, const char *name)
{
    pp_operator *op = admission->op;
    if (admission->questions >= MAX_QUESTIONS)
        return;
    pp_pending_call *question = pp_pending_call_new(op, sizeof *question, question_release);
    if (!question)
        return;
    admission->questions++;
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &PP_PROFILESESSIONS,
                               .ns = ns,
                               .name = name,
                               .timeout_ms = WAIT_NS / MILLISECOND,
                               .first = true,
                               .done = on_session_answer,
                               .user = question};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(question);
}

/* One question serves all that wait for the same session. */
static void ask_for(pp_admission *admission, const waiting *first, int64_t now)
{
    const char *name =
        pp_announced_name(admission->announced, first->ns, labels_of(first->pod), now);
    waiting *w;
    DL_FOREACH(admission->waiting, w)
    {
        const char *its = pp_announced_name(admission->announced, w->ns, labels_of(w->pod), now);
        if (w == first || (name && its && strcmp(w->ns, first->ns) == 0 && strcmp(its, name) == 0))
            w->ask_ns = now + ASK_AGAIN_NS;
    }
    if (name)
        ask(admission, first->ns, name);
}

/* ---- waiting ---- */

static void look_again(pp_admission *admission, waiting *w, int64_t now)
{
    pp_operator *op = admission->op;
    const pp_session *match = pp_match_new_pod(op->matches, w->ns, labels_of(w->pod));
    if (!match && w->until_ns > now &&
        pp_announced_until(admission->announced, w->ns, labels_of(w->pod), now)) {
        if (w->ask_ns <= now)
            ask_for(admission, w, now);
        return;
    }
    if (!match)
        pp_info(w->ns, "a pod is created without the session that was announced before it: the API "
                       "server has not brought that in time");
    decide(op, w->id, w->ns, match, w->pod, w->labelled);
    stop_waiting(admission, w);
}

static void on_timer(uv_timer_t *timer);

static void set_timer(pp_admission *admission)
{
    int64_t first = INT64_MAX;
    const waiting *w;
    DL_FOREACH(admission->waiting, w)
    {
        first = w->until_ns < first ? w->until_ns : first;
        first = w->ask_ns < first ? w->ask_ns : first;
    }
    int64_t left = first - pp_time_monotonic();
    if (admission->waiting)
        uv_timer_start(&admission->timer, on_timer,
                       left > 0 ? (uint64_t)(left / MILLISECOND) + 1 : 0, 0);
    else
        uv_timer_stop(&admission->timer);
}

static void look_at_all(pp_admission *admission)
{
    int64_t now = pp_time_monotonic();
    waiting *w;
    waiting *next;
    DL_FOREACH_SAFE(admission->waiting, w, next)
    {
        look_again(admission, w, now);
    }
    set_timer(admission);
}

static void on_timer(uv_timer_t *timer)
{
    look_at_all(timer->data);
}

/* -1: it cannot wait. */
static int let_wait(pp_admission *admission, pp_http_id id, const pp_http_review *review,
                    int64_t until_ns)
{
    const size_t bytes = pp_json_bytes(review->pod);
    waiting *w = bytes <= MAX_WAITING - admission->waiting_bytes ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return -1;
    int64_t now = pp_time_monotonic();
    const int64_t enough = review->patience / 7 * 6;
    int64_t longest = now + (enough < WAIT_NS ? enough : WAIT_NS);
    w->id = id;
    w->pod = json_incref((json_t *)(uintptr_t)review->pod);
    w->labelled = review->labelled;
    w->until_ns = until_ns < longest ? until_ns : longest;
    w->ask_ns = now + ASK_AFTER_NS;
    (void)snprintf(w->ns, sizeof w->ns, "%s", review->namespace_name);
    w->bytes = bytes;
    admission->waiting_bytes += bytes;
    DL_APPEND(admission->waiting, w);
    set_timer(admission);
    return 0;
}

/* ---- reviews ---- */

static void announce(pp_operator *op, pp_http_id id, const pp_http_review *review)
{
    pp_error err = {0};
    const bool noted =
        !review->dry_run && pp_announced_add(op->admission->announced, review->namespace_name,
                                             review->session, pp_time_monotonic(), &err) == 0;
    if (err.code)
        pp_debug(NULL, "a session to come matches no pod: %s", err.message);
    if (noted && !review->relayed)
        pp_replicas_tell(op, review->namespace_name, review->session, answer_none, id);
    else
        answer_none(op, id);
}

void pp_admission_review(pp_operator *op, pp_http_id id, const pp_http_review *review)
{
    if (!op->ca_bundle || op->stopping || op->idle || !op->admission || !op->matches) {
        answer_none(op, id);
        return;
    }
    if (review->session) {
        announce(op, id, review);
        return;
    }
    const char *ns = review->namespace_name;
    const json_t *labels = labels_of(review->pod);
    const pp_session *match = pp_match_new_pod(op->matches, ns, labels);
    int64_t until =
        match ? 0 : pp_announced_until(op->admission->announced, ns, labels, pp_time_monotonic());
    if (!until || let_wait(op->admission, id, review, until) < 0)
        decide(op, id, ns, match, review->pod, review->labelled);
}

void pp_admission_session_came(pp_operator *op, const pp_session *session)
{
    if (!op->admission)
        return;
    pp_announced_came(op->admission->announced, session);
    if (op->admission->waiting)
        look_at_all(op->admission);
}

/* ---- starting, stopping ---- */

int pp_admission_start(pp_operator *op, pp_error *err)
{
    pp_admission *admission = calloc(1, sizeof *admission);
    if (!admission || !(admission->announced = pp_announced_new())) {
        free(admission);
        return pp_error_nomem(err);
    }
    admission->op = op;
    uv_timer_init(op->loop, &admission->timer);
    admission->timer.data = admission;
    op->admission = admission;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void pp_admission_stop(pp_operator *op)
{
    pp_admission *admission = op->admission;
    if (!admission)
        return;
    op->admission = NULL;
    while (admission->waiting)
        stop_waiting(admission, admission->waiting);
    pp_announced_free(admission->announced);
    uv_close((uv_handle_t *)&admission->timer, on_closed);
}

void pp_admission_options(const pp_operator *op, const char *ns, pp_inject_options *ret)
{
    const pp_config *config = op->config;
    const pp_regression_options attribution = pp_solve_attribution(config);
    *ret = (pp_inject_options){.own_namespace = pp_kube_client_namespace(op->kube),
                               .image = config->injection.image,
                               .pull_policy = config->injection.image_pull_policy,
                               .endpoint = op->endpoint,
                               .addresses = pp_addresses_of(op),
                               .ca = op->ca_bundle,
                               .native_sidecar = op->native_sidecar,
                               .cpu = config->injection.cpu,
                               .memory = config->injection.memory,
                               .gpu_resources = &config->injection.gpu_resources,
                               .capture_seconds = config->injection.capture_seconds,
                               .events_port = config->injection.events_port,
                               .sampling_memory = config->sampling.memory,
                               .sampling_auto = config->sampling.by_auto,
                               .sampling_period_ns = config->sampling.period_us * 1000,
                               .dwell_ns = pp_replay_length(&attribution),
                               .limits = pp_limits_of(op->limits, ns)};
}
