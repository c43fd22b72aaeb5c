/* What the operator keeps of a Pod: a few texts and times instead of the whole object. */
#ifndef PP_OPERATOR_CACHE_POD_H
#define PP_OPERATOR_CACHE_POD_H

#include "common/error.h"
#include "controller/injection/inject.h"
#include "controller/pods/startup.h"
#include "controller/pods/unheard.h"
#include "controller/session/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** The kind of a workload that a label names. */
#define PP_POD_LABELLED "Workload"

typedef struct pp_pod {
    char *ns;
    char *name;
    char *uid;
    char *node;        /**< NULL: not scheduled */
    char *ip;          /**< NULL: none yet */
    char *host_name;   /**< inside the pod */
    char *session_uid; /**< of the session that it was injected for; NULL: none */
    char *container;   /**< the profiled containers' names, as annotated; NULL: none */
    bool hooked;       /**< it carries the hook */
    char *owner_kind;  /**< of its workload: the controlling owner, "Deployment" for a ReplicaSet;
                          "Pod" without one */
    char *owner_name;
    char *workload;      /**< by its label, in the owner's place in results; NULL: it has none */
    pp_owner_kind owner; /**< the same by group and kind: what is asked whether a pod will follow */
    bool managed;        /**< by its labels a controller of the owner's may make that anew */
    json_t *labels;      /**< NULL: none */
    double cpu_request;  /**< cores, all containers together; NaN: none requested */
    int64_t created_ns;
    int64_t finished_ns; /**< end of its last container; 0: unknown or running */
    bool running;
    bool finished;
    bool failed;
    bool leaving;         /**< it is being deleted */
    pp_startup *startup;  /**< what keeps it from starting; NULL: nothing */
    pp_unheard_pod *runs; /**< what runs of it; NULL: nothing, or it carries no hook */
    int64_t clock_said_s; /**< pp_wire_clock_read of its agent's last words; 0: there are none */
    bool agent_alone;     /**< of its containers only an ordinary sidecar may still run */
} pp_pod;

/** From the API's JSON, which is not kept. NULL with err set when it has no name or UID. */
pp_pod *pp_pod_decode(const json_t *object, pp_error *err);

/** Accepts NULL. */
void pp_pod_free(pp_pod *pod);

/** The session's view of it; texts are borrowed from the pod. */
void pp_pod_view(const pp_pod *pod, pp_session_pod *ret);

/** What decides which session has it; borrowed from the pod. */
void pp_pod_for_inject(const pp_pod *pod, pp_inject_pod_view *ret);

/** "250m", "1.5", "2" (a Kubernetes quantity of cores) into cores; -1 when it is none. */
double pp_pod_parse_cores(const char *quantity);

#endif
