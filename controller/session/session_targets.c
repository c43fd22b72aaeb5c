#include "controller/session/session_targets.h"

#include "common/time.h"
#include "controller/session/session_query.h"
#include "controller/session/session_refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void join_gpus(const pp_session_pod *pod, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < pod->n_gpus; i++) {
        size_t n = strlen(pod->gpus[i]);
        if (len + n + 2 > size)
            return;
        len += (size_t)snprintf(out + len, size - len, "%s%s", len ? "," : "", pod->gpus[i]);
    }
}

static void fill_target(const pp_session *session, const pp_session_pod *pod,
                        pp_session_target *ret)
{
    *ret = (pp_session_target){.rank = pod->rank,
                               .last_seen_ns = pod->last_batch_ns,
                               .steps = pod->steps,
                               .events = pod->events,
                               .injected = pp_session_pod_injected(session, pod),
                               .reporting = pod->connected};
    (void)snprintf(ret->pod, sizeof ret->pod, "%s", pod->name);
    (void)snprintf(ret->uid, sizeof ret->uid, "%s", pod->uid);
    (void)snprintf(ret->node, sizeof ret->node, "%s", pod->node ? pod->node : "");
    join_gpus(pod, ret->gpus, sizeof ret->gpus);
    if (ret->injected) {
        (void)snprintf(ret->reason, sizeof ret->reason, "%s",
                       pod->trouble ? pod->trouble->reason : "");
        return;
    }
    const char *message;
    const char *reason = pp_session_pod_refusal(session, pod, &message);
    if (!reason)
        reason = pp_session_previous_reason(session, pod->uid);
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason ? reason : "");
}

/* Pods with a problem first, then by name, so that the list's end cuts off the healthy ones. */
static int compare_targets(const void *a, const void *b)
{
    const pp_session_target *x = a, *y = b;
    if (!x->reason[0] != !y->reason[0])
        return x->reason[0] ? -1 : 1;
    int by_name = strcmp(x->pod, y->pod);
    return by_name ? by_name : strcmp(x->uid, y->uid);
}

static void copy_text(const json_t *object, const char *key, char *out, size_t size)
{
    const char *text = pp_json_get_string(object, key, NULL);
    (void)snprintf(out, size, "%s", text ? text : "");
}

static void target_from_status(const json_t *item, pp_session_target *ret)
{
    *ret = (pp_session_target){.rank = -1, .injected = true};
    copy_text(item, "pod", ret->pod, sizeof ret->pod);
    copy_text(item, "uid", ret->uid, sizeof ret->uid);
    copy_text(item, "node", ret->node, sizeof ret->node);
    const json_t *gpus = json_object_get(item, "gpus");
    size_t len = 0;
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const char *gpu = json_string_value(json_array_get(gpus, i));
        if (gpu && len + strlen(gpu) + 2 <= sizeof ret->gpus)
            len += (size_t)snprintf(ret->gpus + len, sizeof ret->gpus - len, "%s%s", len ? "," : "",
                                    gpu);
    }
    const json_t *rank = json_object_get(item, "rank");
    ret->rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
    const char *seen = pp_json_get_string(item, "lastSeen", NULL);
    if (seen)
        (void)pp_time_parse(seen, &ret->last_seen_ns, NULL);
    ret->steps = json_integer_value(json_object_get(item, "steps"));
    ret->events = json_integer_value(json_object_get(item, "events"));
}

/* The figures that the status gave for a pod before. */
static void recall_target(const pp_session *session, pp_session_target *ret)
{
    const json_t *targets = json_object_get(session->status, "targets");
    pp_session_target before;
    for (size_t i = 0; i < json_array_size(targets); i++) {
        target_from_status(json_array_get(targets, i), &before);
        if (strcmp(before.uid, ret->uid) != 0)
            continue;
        memcpy(ret->gpus, before.gpus, sizeof ret->gpus);
        ret->rank = before.rank;
        ret->last_seen_ns = before.last_seen_ns;
        ret->steps = before.steps;
        ret->events = before.events;
    }
}

static bool observed(const pp_session_turn *turn, const char *uid)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        if (!turn->obs->pods[i].gone && strcmp(turn->obs->pods[i].uid, uid) == 0)
            return true;
    }
    return false;
}

/* Pods that reported and are deleted since: they stay listed. */
static size_t list_deleted(const pp_session_turn *turn, pp_session_target *out, size_t max)
{
    size_t n = 0;
    const json_t *targets = json_object_get(turn->session->status, "targets");
    for (size_t i = 0; i < json_array_size(targets) && n < max; i++) {
        const json_t *item = json_array_get(targets, i);
        const char *uid = pp_json_get_string(item, "uid", NULL);
        if (!uid || !json_is_string(json_object_get(item, "lastSeen")) || observed(turn, uid))
            continue;
        target_from_status(item, &out[n++]);
    }
    return n;
}

int pp_session_list_targets(pp_session_turn *turn, pp_error *err)
{
    const pp_session_observation *obs = turn->obs;
    pp_session_target *all = calloc(obs->n_pods + PP_SESSION_MAX_TARGETS, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t n = 0;
    for (size_t i = 0; i < obs->n_pods; i++) {
        if (!pp_session_pod_counts(turn->session, &obs->pods[i]))
            continue;
        fill_target(turn->session, &obs->pods[i], &all[n]);
        if (obs->unread)
            recall_target(turn->session, &all[n]);
        n++;
    }
    n += list_deleted(turn, all + n, PP_SESSION_MAX_TARGETS);
    qsort(all, n, sizeof *all, compare_targets);
    turn->to->targets = all;
    turn->to->n_targets = n < PP_SESSION_MAX_TARGETS ? n : PP_SESSION_MAX_TARGETS;
    return 0;
}
