/*
 * What makes a training's pods, and whether it will make another: a session follows it, not the pod
 * (docs/profilesession.md). No I/O.
 */
#ifndef PP_CONTROLLER_SESSION_OWNER_H
#define PP_CONTROLLER_SESSION_OWNER_H

#include <jansson.h>
#include <stdbool.h>

/** On pods of the Jobs that JobSet makes, and Kubeflow Trainer with it. */
#define PP_LABEL_JOBSET "jobset.sigs.k8s.io/jobset-name"

typedef enum pp_owner_kind {
    PP_OWNER_NONE = 0, /**< a bare pod */
    PP_OWNER_JOB,
    PP_OWNER_DEPLOYMENT,
    PP_OWNER_REPLICA_SET,
    PP_OWNER_STATEFUL_SET,
    PP_OWNER_DAEMON_SET,
    PP_OWNER_OTHER, /**< of a kind that is not known here */
} pp_owner_kind;

typedef enum pp_owner_state {
    PP_OWNER_ASKING = 0, /**< not known yet */
    PP_OWNER_UNKNOWN,    /**< it cannot be known: another kind, or it may not be read */
    PP_OWNER_MAKES_PODS, /**< it wants a pod, or will once its own pause is over */
    PP_OWNER_DONE,       /**< no pod of it will follow, or it is gone */
    PP_OWNER_MANAGED,    /**< the same, but its own controller may make it anew */
} pp_owner_state;

/** By the ownerReference's apiVersion and kind; either may be NULL. */
pp_owner_kind pp_owner_kind_of(const char *api_version, const char *kind);

/** "Job", ...; "" for PP_OWNER_NONE, "controller" for PP_OWNER_OTHER. */
const char *pp_owner_kind_name(pp_owner_kind kind);

/** Whether the owner's object has a controller that may make it anew, as JobSet does to start a
 * training again. A CronJob's next Job is another training. */
bool pp_owner_is_managed(const json_t *object);

/** What the owner's object says; NULL: the API server has none. `managed`: it has, or had, such a
 * controller. */
pp_owner_state pp_owner_state_of(pp_owner_kind kind, const json_t *object, bool managed);

#endif
