/*
 * Injection: a Pod that is about to be created -> the JSON patch that makes it report; and which
 * session has a pod that carries the hook.
 *
 * Pure: used by the admission webhook, and by the reconciler to say why a pod that runs without
 * the hook was not injected. What is added, and what makes a pod be left as it is, is described in
 * docs/injection.md.
 */
#ifndef PP_CONTROLLER_INJECTION_INJECT_H
#define PP_CONTROLLER_INJECTION_INJECT_H

#include "common/error.h"
#include "common/json.h"
#include "controller/injection/inject_fit.h"
#include "controller/session/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What a patch adds; docs/injection.md explains. */
#define PP_INJECT_HOOK "precisionprobe-hook"               /* init container and volume */
#define PP_INJECT_AGENT "precisionprobe-agent"             /* sidecar */
#define PP_INJECT_ENVIRONMENT "precisionprobe-environment" /* init containers: "...-0" and on */
#define PP_INJECT_RING "precisionprobe-ring"               /* volume */
#define PP_INJECT_SPOOL "precisionprobe-spool"             /* volume */
#define PP_INJECT_IDENTITY "precisionprobe-identity"       /* volume */
/* Annotation: volumes on the node's disk that Cluster Autoscaler may lose, joined by ",". */
#define PP_INJECT_EVICTABLE "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
#define PP_INJECT_HOOK_PATH "/opt/precisionprobe"
#define PP_INJECT_PYTHON_PATH "/opt/precisionprobe/python"
#define PP_INJECT_RING_PATH "/run/precisionprobe"
#define PP_INJECT_SPOOL_PATH "/var/spool/precisionprobe"
/* Not below /var/run: where an image links /var/run to /run it would hide the ring. */
#define PP_INJECT_IDENTITY_PATH "/etc/precisionprobe/identity"

/** All of it but `limits` and `unprobed` is needed, and texts are borrowed. */
typedef struct pp_inject_options {
    const char *own_namespace; /**< the operator's, whose pods are left alone; NULL: not known */
    const char *image;         /**< of the hook and the agent */
    const char *pull_policy;
    const char *endpoint;        /**< wss://service.namespace.svc:port/v1/ingest */
    const pp_strings *addresses; /**< literal IPs behind the endpoint's name; NULL: not known */
    const char *ca;              /**< PEM that the agent trusts */
    bool native_sidecar;         /**< the nodes run init containers with restartPolicy Always */
    const char *cpu;    /**< what the agent asks for; "": nothing, unless the pod makes it ask */
    const char *memory; /**< the same, and its limit */
    const pp_strings *gpu_resources; /**< by which a container is known to use a GPU */
    double capture_seconds;          /**< least length of a capture */
    int64_t events_port;             /**< on the pod's loopback, for foreign hooks; 0: none */
    bool sampling_auto;              /**< sessions of method Auto ask for PM sampling too */
    const char *sampling_memory;     /**< as memory, where PM sampling is asked for */
    int64_t sampling_period_ns;      /**< between samples, where a session asks for them */
    int64_t dwell_ns; /**< of replays, where a session asks for them and does not say */
    const pp_inject_limits *limits; /**< of the pod's namespace; NULL: none */
    /** Why pods of what makes this one are left alone for a while; NULL: they are not. */
    const struct pp_inject_refusal *unprobed;
} pp_inject_options;

typedef enum pp_inject_result {
    PP_INJECT_PATCHED = 0, /**< *ret_patch adds everything */
    PP_INJECT_ALREADY,     /**< injected for this session before: the patch is empty */
    PP_INJECT_OTHER,       /**< injected for another session, or for none: the patch is empty */
    PP_INJECT_REFUSED,     /**< cannot be injected, the refusal says why: the patch is empty, or
                              notes a reason that may be gone when somebody asks for it */
} pp_inject_result;

typedef struct pp_inject_refusal {
    char reason[64];   /**< CamelCase, e.g. "PythonPathFromSource" */
    char message[400]; /**< a sentence that ends with what to do */
} pp_inject_refusal;

/**
 * The patch for one pod; without a session (NULL) one whose hook waits for sessions to come.
 * Returns a pp_inject_result; *ret_patch is then a new array (see there). Returns -1
 * with err set when the input is no pod or memory is short. `refusal` is filled only for REFUSED.
 * The pod is not changed.
 */
int pp_inject_patch(const json_t *pod, const pp_session *session, const pp_inject_options *opt,
                    json_t **ret_patch, pp_inject_refusal *refusal, pp_error *err);

/**
 * Why a pod that exists is not injected for the session, for its status: what pp_inject_patch
 * would refuse, else CreatedBefore or WebhookMissed. Not for pods that are injected for it.
 */
void pp_inject_explain(const json_t *pod, const pp_session *session, const pp_inject_options *opt,
                       pp_inject_refusal *ret);

/**
 * The session that a pod of this namespace with these labels belongs to: of the live ones that
 * match, the oldest, then the first by name. NULL: none. Entries may be NULL.
 */
const pp_session *pp_inject_matching(const pp_session *const *sessions, size_t n,
                                     const char *namespace_, const json_t *labels);

/** Whether a pod's labels ask for the hook where no session matches. */
bool pp_inject_wanted(const json_t *labels);

/** Whether a container or a volume of this name is one that injection adds. */
bool pp_inject_is_ours(const char *name);

/** Whether the pod carries all parts of an injection; an annotation alone is none. */
bool pp_inject_carried(const json_t *pod);

/** What decides which session has a pod; texts and labels are borrowed. */
typedef struct pp_inject_pod_view {
    const char *namespace_;
    const json_t *labels;
    const char *session_uid; /**< of the session that it was injected for; NULL: none */
    const char *containers;  /**< that have the hook, joined by ","; NULL: not known */
    bool hooked;             /**< pp_inject_carried */
} pp_inject_pod_view;

/** Whether the session may have the pod: it was injected for it, or carries the hook, in the
 * containers that the session wants, and matches. */
bool pp_inject_eligible(const pp_session *session, const pp_inject_pod_view *pod);

/**
 * The session that has the pod now: the live one that it was injected for, else of the live ones
 * that may have it the oldest, then the first by name. NULL: none. Entries may be NULL.
 */
const pp_session *pp_inject_holder(const pp_session *const *sessions, size_t n,
                                   const pp_inject_pod_view *pod);

/**
 * Whether a server that says this of its version (/version) has native sidecars on every node that
 * it may have: 1, 0, or -1 where it does not say.
 */
int pp_inject_native_sidecar(const json_t *version);

/** The agent's settings.json for a session, or for none (NULL); a new reference, NULL when out of
 * memory. */
json_t *pp_inject_settings(const pp_session *session, const pp_inject_options *opt);

#endif
