/*
 * Events for people (`kubectl describe`), as events.k8s.io/v1: repeats of one event become a series
 * with a count instead of new objects, and each object has an allowance. New ones are written one
 * after another, 32 at a time, repeats every 10 s. Recording never blocks and never fails visibly;
 * what is dropped is counted.
 */
#ifndef PP_OPERATOR_KUBE_EVENTS_H
#define PP_OPERATOR_KUBE_EVENTS_H

#include "operator/kube/client.h"

typedef struct pp_kube_recorder pp_kube_recorder;

/** What an event is about. Strings are borrowed for the call; uid may be NULL. */
typedef struct pp_kube_object_ref {
    const char *api_version; /**< "v1", "precisionprobe.io/v1alpha1" */
    const char *kind;
    const char *ns; /**< NULL: cluster-scoped, its events are kept in "default" */
    const char *name;
    const char *uid;
} pp_kube_object_ref;

typedef enum pp_kube_event_type { PP_KUBE_EVENT_NORMAL, PP_KUBE_EVENT_WARNING } pp_kube_event_type;

/**
 * `controller` is e.g. "precisionprobe.io/operator", `instance` e.g. the pod's name. An object may
 * have 25 events at once and one more every 5 min, as in client-go. NULL on error.
 */
pp_kube_recorder *pp_kube_recorder_new(pp_kube_client *client, const char *controller,
                                       const char *instance, pp_error *err);

/** Drops what was not sent yet. Run the loop until closed. */
void pp_kube_recorder_free(pp_kube_recorder *recorder);

/**
 * Records an event: `reason` in CamelCase ("InjectionRefused"), `action` what we were doing
 * ("Inject"), then a note as printf format, cut at 1 KiB.
 */
__attribute__((format(printf, 6, 7))) void
pp_kube_event(pp_kube_recorder *recorder, const pp_kube_object_ref *ref, pp_kube_event_type type,
              const char *reason, const char *action, const char *fmt, ...);

typedef struct pp_kube_recorder_stats {
    uint64_t sent;    /**< created or updated on the server */
    uint64_t dropped; /**< by the allowance, by the server, or 4,096 were not written yet */
} pp_kube_recorder_stats;

pp_kube_recorder_stats pp_kube_recorder_get_stats(const pp_kube_recorder *recorder);

#endif
