/*
 * Injected pods that do not start: what keeps them, whether what was added does, and whether such a
 * pod may be let go so that its controller makes another without the probe.
 *
 * Pure: from the Pod as the API has it, and from what made it.
 */
#ifndef PP_CONTROLLER_PODS_STARTUP_H
#define PP_CONTROLLER_PODS_STARTUP_H

#include "controller/session/owner.h"
#include "controller/session/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** How long a cause has to last, ns: less passes by itself too often. */
#define PP_STARTUP_NAMED_NS INT64_C(10000000000)
/** And before the pod is let go: every replica knows by then that its successor is left alone. */
#define PP_STARTUP_RELEASE_NS INT64_C(20000000000)
/** How long pods of what made such a pod are created without the probe. */
#define PP_STARTUP_UNPROBED_NS (INT64_C(3600) * 1000000000)

typedef enum pp_startup_cause {
    PP_STARTUP_NONE = 0,
    PP_STARTUP_IMAGE,     /**< the image of what was added cannot be pulled */
    PP_STARTUP_CONTAINER, /**< a container that was added fails */
    PP_STARTUP_ROOM,      /**< no node has room, and what was added asks for some */
    PP_STARTUP_OWN_IMAGE, /**< the trainer's own, which an added container needs first */
} pp_startup_cause;

typedef struct pp_startup {
    pp_startup_cause cause;
    bool over;      /**< the pod has failed of it */
    bool untouched; /**< no container but those that were added has ever started */
    bool bound;     /**< others wait for it (a gang, a queue): it is never let go */
    char container[64];
    char why[240]; /**< in the words of the kubelet or the scheduler */

    /* What made it; kind PP_OWNER_NONE: nothing. */
    pp_owner_kind kind;
    char owner_name[254];
    char owner_uid[64];
    int64_t index_failures; /**< of its index of an indexed Job; -1: none are told */
    char version[64];       /**< of the Pod that this was read from */
} pp_startup;

/** What keeps the pod; the cause is NONE where it has no injection of ours, or starts. */
void pp_startup_look(const json_t *pod, pp_startup *ret);

/** Whether what was added is the cause, for all that is known. */
bool pp_startup_is_ours(const pp_startup *startup);

/** Says it: the reason, and a sentence that ends with what to do. */
void pp_startup_tell(const pp_startup *startup, pp_session_pod_trouble *ret);

/**
 * Whether the pod may be deleted because `owner`, as the API has it, makes another. `failed` is how
 * many pods of a Job are known to have failed, those that were let go among them; `stuck` how many
 * are to be let go, this one among them.
 */
bool pp_startup_may_release(const pp_startup *startup, const json_t *owner, int64_t failed,
                            int64_t stuck);

/** The UID of the controller that makes a pod; NULL: none, or the pod names none. */
const char *pp_startup_owner_uid(const json_t *pod);

#endif
