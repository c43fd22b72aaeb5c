#include "operator/installation/rights_ask.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/installation/deployment.h"
#include "operator/state/pending_call.h"
#include "operator/state/rights.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <string.h>

enum { ASK_EVERY_MS = 30000, DOUBT_MS = 1000 /* between questions that a denial raises */ };

static const pp_kube_resource REVIEWS = {"authorization.k8s.io", "v1", "selfsubjectaccessreviews"};

static const struct {
    pp_right right;
    const char *verb, *group, *resource, *subresource;
    bool cluster; /* not of the watched namespace */
} questions[] = {
    {PP_RIGHT_SESSIONS, "list", "precisionprobe.io", "profilesessions", "", false},
    {PP_RIGHT_SESSIONS, "watch", "precisionprobe.io", "profilesessions", "", false},
    {PP_RIGHT_STATUS, "patch", "precisionprobe.io", "profilesessions", "status", false},
    {PP_RIGHT_PODS, "list", "", "pods", "", false},
    {PP_RIGHT_PODS, "watch", "", "pods", "", false},
    {PP_RIGHT_TOKEN_REVIEWS, "create", "authentication.k8s.io", "tokenreviews", "", true},
};
enum { QUESTIONS = sizeof questions / sizeof questions[0] };

/** One round: the questions one after another. */
typedef struct round_of_questions {
    pp_pending_call context;
    size_t next;
    bool denied[PP_RIGHT_COUNT]; /* a right with several verbs needs all of them */
} round_of_questions;

static void ask(round_of_questions *round);

/* Once for all that is missing: a binding that is gone takes several rights at a time. */
static void tell_missing(pp_operator *op)
{
    char missing[256] = "", text[400];
    (void)pp_rights_missing(&op->rights, pp_time_monotonic(), missing, sizeof missing);
    if (strcmp(missing, op->rights_told) == 0)
        return;
    (void)snprintf(op->rights_told, sizeof op->rights_told, "%s", missing);
    op->rights_news = true;
    (void)snprintf(text, sizeof text, "not ready: %s; " PP_RIGHTS_REMEDY, missing);
    if (missing[0])
        pp_deployment_event(op, "RightsMissing", "Ask", text);
}

static void end_round(round_of_questions *round)
{
    const pp_error denial = {.code = PP_ERR_DENIED};
    for (int i = 0; i <= PP_RIGHT_TOKEN_REVIEWS; i++)
        pp_rights_tell(round->context.op, (pp_right)i, round->denied[i] ? &denial : NULL);
    tell_missing(round->context.op);
    pp_pending_call_free(round);
}

/* Where it may not even ask, what calls show is all that there is. */
static void on_answer(void *user, json_t *object, const pp_error *error)
{
    round_of_questions *round = user;
    if (error) {
        if (error->code == PP_ERR_UNAUTHORIZED)
            pp_rights_tell(round->context.op, PP_RIGHT_TOKEN, error);
        pp_pending_call_free(round);
        return;
    }
    if (!json_is_true(pp_json_get(object, "status", "allowed", NULL)))
        round->denied[questions[round->next].right] = true;
    round->next++;
    if (round->next < QUESTIONS)
        ask(round);
    else
        end_round(round);
}

static void ask(round_of_questions *round)
{
    const pp_operator *op = round->context.op;
    size_t i = round->next;
    const char *ns = questions[i].cluster ? "" : op->config->kubernetes.ns;
    PP_CLEANUP_JSON json_t *body = json_pack(
        "{s:s, s:s, s:{s:{s:s, s:s, s:s, s:s, s:s}}}", "apiVersion", "authorization.k8s.io/v1",
        "kind", "SelfSubjectAccessReview", "spec", "resourceAttributes", "verb", questions[i].verb,
        "group", questions[i].group, "resource", questions[i].resource, "subresource",
        questions[i].subresource, "namespace", ns);
    const pp_kube_call call = {.verb = PP_KUBE_CREATE,
                               .resource = &REVIEWS,
                               .body = body,
                               .timeout_ms = 10000,
                               .done = on_answer,
                               .user = round};
    if (!body || pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(round);
}

static void on_time(uv_timer_t *timer)
{
    round_of_questions *round = pp_pending_call_new(timer->data, sizeof *round, NULL);
    if (round)
        ask(round);
}

void pp_rights_tell_written(pp_operator *op, const pp_error *error)
{
    if (!error || error->code != PP_ERR_DENIED)
        pp_rights_tell(op, PP_RIGHT_STATUS, error);
    else if (uv_timer_get_due_in(&op->rights_timer) > DOUBT_MS)
        uv_timer_start(&op->rights_timer, on_time, DOUBT_MS, ASK_EVERY_MS);
}

void pp_rights_start(pp_operator *op)
{
    uv_timer_start(&op->rights_timer, on_time, 0, ASK_EVERY_MS);
}

void pp_rights_stop(pp_operator *op)
{
    uv_timer_stop(&op->rights_timer);
}
