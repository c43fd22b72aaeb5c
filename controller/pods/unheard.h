/*
 * Injected pods that run and are not heard from: whose agent has not connected to the operator, or
 * in which no Python runs with the hook.
 *
 * Pure: from the Pod as the API has it, and from what the operator has seen of it. All times are
 * monotonic ns of the operator's process; what nodes' clocks say is no measure of that.
 */
#ifndef PP_CONTROLLER_PODS_UNHEARD_H
#define PP_CONTROLLER_PODS_UNHEARD_H

#include "common/wire.h"
#include "controller/session/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** How long a pod is waited for, ns: from the moment at which it could be heard. */
#define PP_UNHEARD_NS INT64_C(45000000000)

typedef enum pp_unheard_cause {
    PP_UNHEARD_NONE = 0,
    PP_UNHEARD_AGENT,   /**< its agent has not connected */
    PP_UNHEARD_REFUSED, /**< the hook refuses to profile it */
    PP_UNHEARD_HOOK,    /**< its agent is connected, and no Python can have loaded the hook */
} pp_unheard_cause;

/** What the Pod says. */
typedef struct pp_unheard_pod {
    bool agent_runs;       /**< or is about to be started anew */
    bool trainer_runs;     /**< one of the profiled containers does */
    int64_t trainer_start; /**< when that was started, by its node: it names the start, no more */
    char container[64];    /**< that one's name */
    char program[64];      /**< its command's, without the folder; "": the image's own */
} pp_unheard_pod;

/** What has been seen of it. */
typedef struct pp_unheard {
    int64_t open_since;    /**< since when agents are let in here; 0: they are not */
    int64_t agent_since;   /**< since when its agent is known to run; 0: it does not */
    int64_t trainer_since; /**< the same of its trainer */
    bool connected;        /**< its agent is */
    bool was_connected;    /**< now or before */
    bool shut_out;         /**< its agent has said that its node's clock keeps it out */
    bool told;             /**< its agent has told of the hook: those of earlier releases do not */
    pp_wire_hook hook;     /**< what it told */
} pp_unheard;

/** False where it carries no hook, or nothing of it runs. */
bool pp_unheard_read(const json_t *pod, pp_unheard_pod *ret);

/** What keeps the pod from being heard as things are now; *ret_at is when that has lasted for long
 * enough to be said, 0 where there is none. */
pp_unheard_cause pp_unheard_look(const pp_unheard *seen, int64_t *ret_at);

/** Says it: the reason, and a sentence that ends with what to do. `endpoint` is what agents
 * connect to. */
void pp_unheard_tell(pp_unheard_cause cause, const pp_unheard_pod *pod, const pp_wire_hook *hook,
                     const char *endpoint, pp_session_pod_trouble *ret);

#endif
