/* What the operator keeps of a Pod: a few texts and times instead of the whole object. */
#ifndef PP_OPERATOR_POD_H
#define PP_OPERATOR_POD_H

#include "common/error.h"
#include "controller/inject.h"
#include "controller/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

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
    json_t *labels; /**< NULL: none */
    int64_t
        ask_ns; /**< monotonic, why it is not injected is asked from then on; INT64_MAX: asked */
    pp_inject_refusal refusal; /**< the answer; reason "": none yet */
    double cpu_request;        /**< cores, all containers together; NaN: none requested */
    int64_t created_ns;
    int64_t finished_ns; /**< end of its last container; 0: unknown or running */
    bool running;
    bool finished;
    bool failed;
    bool agent_alone; /**< of its containers only an ordinary sidecar may still run */
} pp_pod;

/** From the API's JSON, which is not kept. NULL with err set when it has no name or UID. */
pp_pod *pp_pod_decode(const json_t *object, pp_error *err);

/** Accepts NULL. */
void pp_pod_free(pp_pod *pod);

/** The session's view of it; texts are borrowed from the pod. */
void pp_pod_view(const pp_pod *pod, pp_session_pod *ret);

/** What decides which session has it; borrowed from the pod. */
void pp_pod_carrier(const pp_pod *pod, pp_inject_carrier *ret);

/** "250m", "1.5", "2" (a Kubernetes quantity of cores) into cores; -1 when it is none. */
double pp_pod_parse_cores(const char *quantity);

#endif
