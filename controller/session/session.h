/*
 * A ProfileSession: what was asked for, which pods it means, and what to do next.
 *
 * Pure decisions: no I/O, no threads, no clock. The operator observes (watches, the store,
 * Prometheus), calls pp_session_step, and carries the decision out; it may be called as often as
 * one likes, since everything that it remembers is in the object's status. docs/profilesession.md
 * describes the same for users.
 *
 * Times are ns since 1970; 0 means "not yet" or "never" for a point in time.
 */
#ifndef PP_CONTROLLER_SESSION_SESSION_H
#define PP_CONTROLLER_SESSION_SESSION_H

#include "common/error.h"
#include "common/json.h"
#include "common/method.h"
#include "common/metric.h"
#include "controller/session/owner.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_SESSION_MAX_TARGETS 20     /* listed in status */
#define PP_SESSION_MAX_PAUSES 32      /* that are told apart */
#define PP_SESSION_MAX_EVENTS 16      /* of one decision */
#define PP_SESSION_MAX_LABELS 64      /* matchLabels */
#define PP_SESSION_MAX_EXPRESSIONS 32 /* matchExpressions */
#define PP_SESSION_CLOCK_WHY 256      /* bytes of why a batch's stamps are refused, with the NUL */
#define PP_SESSION_PM_WHY 257         /* bytes of why a pod is not sampled, with the NUL */
#define PP_SESSION_DWELL_MAX INT64_C(60000000000) /* ns; as agents take it */
#define PP_SESSION_ISOLATED_WHY 65                /* and of why its layers are not replayed */

/* Keys on pods. */
#define PP_ANNOTATION_SESSION "precisionprobe.io/session"
#define PP_ANNOTATION_SESSION_UID "precisionprobe.io/session-uid"
#define PP_ANNOTATION_CONTAINERS "precisionprobe.io/containers"
#define PP_ANNOTATION_SETTINGS "precisionprobe.io/settings"
#define PP_ANNOTATION_CA "precisionprobe.io/ca"
#define PP_ANNOTATION_PYTHONPATH "precisionprobe.io/pythonpath"
#define PP_ANNOTATION_LEFT "precisionprobe.io/not-injected" /* "Reason: sentence" */
#define PP_LABEL_INJECTED "precisionprobe.io/injected"
#define PP_LABEL_WORKLOAD "precisionprobe.io/workload"
#define PP_LABEL_INJECT "precisionprobe.io/inject" /* "true": also where no session matches yet */

typedef enum pp_session_phase {
    PP_SESSION_PENDING = 0, /**< waiting for a pod to report its first step */
    PP_SESSION_COLLECTING,  /**< steps are sampled */
    PP_SESSION_FINISHING,   /**< sampling is over; the last data is gathered and solved */
    PP_SESSION_SUCCEEDED,   /**< final */
    PP_SESSION_FAILED,      /**< final */
    PP_SESSION_SUSPENDED,   /**< spec.suspend */
} pp_session_phase;
#define PP_SESSION_PHASES (PP_SESSION_SUSPENDED + 1)

/** "Pending", ... as in status.phase and the store. */
const char *pp_session_phase_name(pp_session_phase phase);

/* Bits of pp_session.phases. */
#define PP_SESSION_FORWARD 1U
#define PP_SESSION_BACKWARD 2U
#define PP_SESSION_OPTIMIZER 4U

typedef struct pp_label {
    char *key;
    char *value;
} pp_label;

typedef enum pp_selector_operator {
    PP_SELECTOR_IN,
    PP_SELECTOR_NOT_IN,
    PP_SELECTOR_EXISTS,
    PP_SELECTOR_DOES_NOT_EXIST,
} pp_selector_operator;

typedef struct pp_selector_requirement {
    char *key;
    pp_selector_operator op;
    pp_strings values;
} pp_selector_requirement;

typedef struct pp_selector {
    pp_label *labels;
    size_t n_labels;
    pp_selector_requirement *requirements;
    size_t n_requirements;
} pp_selector;

/** A span of time, on the operator's clock. */
typedef struct pp_session_span {
    int64_t from_ns, to_ns;
} pp_session_span;

/** A ProfileSession, decoded. Owned strings are never NULL after a successful decode. */
typedef struct pp_session {
    /* metadata */
    char *namespace_;
    char *name;
    char *uid;
    char *resource_version;
    int64_t generation;
    int64_t created_ns;
    bool deleting; /**< has a deletionTimestamp */

    /* spec */
    json_t *spec; /**< as it came, for the store */
    pp_selector selector;
    pp_strings containers; /**< empty: those that ask for a GPU, else the first */
    int64_t duration_ns;
    int64_t deadline_ns;
    int64_t steps_skip;
    int64_t steps_max; /**< 0: no limit */
    pp_strings include, exclude, types;
    int64_t depth;    /**< 0: leaves at any depth */
    unsigned phases;  /**< PP_SESSION_FORWARD | ... */
    unsigned metrics; /**< bits 1 << pp_metric */
    double overhead_budget_percent;
    pp_method method;
    int64_t dwell_ns;     /**< Replay: of one layer in one phase; 0: as the operator has it */
    int64_t max_pause_ns; /**< and how long the training may be paused in all */
    char *existing_pods;  /**< "Report" */
    double tolerance_percent;
    bool suspend;
    int64_t ttl_ns; /**< after its end; -1: as it was accepted with */

    /** Set when the spec breaks a rule (an older CRD may have let it pass); else PP_OK. */
    pp_error invalid;

    /* status, as last written */
    bool has_status; /**< status.phase was there */
    pp_session_phase phase;
    int64_t start_ns;        /**< start of the first sampled step */
    int64_t sampling_end_ns; /**< when sampling was ended */
    int64_t completion_ns;
    int64_t ends_at_ns;     /**< when sampling ends, suspension counted */
    int64_t deadline_at_ns; /**< when the session gives up, suspension counted */
    int64_t suspended_at_ns;
    pp_session_span
        pauses[PP_SESSION_MAX_PAUSES]; /**< in which it was suspended; apart, in order */
    size_t n_pauses;
    int64_t expires_after_s; /**< that it was accepted with; 0: it does not expire by that */
    json_t *status;          /**< as it came; never NULL */
} pp_session;

/**
 * Decodes an API object. Only metadata that cannot be used fails the call; a spec that breaks a
 * rule gives a session with `invalid` set, so that its status can say so. The rules are the CRD's,
 * but for what does no harm: durations in us and ns or of more digits, entries listed twice. *ret
 * is owned.
 */
int pp_session_decode(const json_t *object, pp_session **ret, pp_error *err);

/** Accepts NULL and half-decoded ones; returns NULL. */
pp_session *pp_session_free(pp_session *session);

/** Whether pods are injected for it: valid, not deleted, and neither finishing nor final. */
bool pp_session_live(const pp_session *session);

/** What is known of a pod, as to whose it is. */
typedef struct pp_session_claim {
    const char *injected_for; /**< UID of the session that it was injected for; NULL: for none */
    bool hooked;              /**< it carries the hook */
    bool reported;            /**< a batch of it was stored for the session in question */
    const pp_session *holder; /**< the live session whose turn it is; NULL: none */
} pp_session_claim;

/** UID of the session that the pod is of, as `session` has it: its own where the pod was injected
 * for it, has reported to it, or is its to have now; else another's, or NULL. */
const char *pp_session_whose(const pp_session *session, const pp_session_claim *pod);

/** Whether batches of its pods are taken: live, or finishing. */
bool pp_session_takes_batches(const pp_session *session);

/** Whether its phase is Succeeded or Failed. */
bool pp_session_final(const pp_session *session);

/** When it is to be deleted, by its own ttlSecondsAfterFinished, else by what it was accepted with;
 * 0: never, or it has not ended. */
int64_t pp_session_expires_ns(const pp_session *session);

/** What the operator's configuration allows of replays (docs/replay.md). */
typedef struct pp_session_limits {
    bool replay;      /**< whether layers may be replayed, which pauses the training */
    int64_t dwell_ns; /**< of a layer in a phase, where a session does not say */
    int64_t
        dwell_least_ns; /**< that holds metric windows enough if they come at once; 0: not known */
    int64_t dwell_sure_ns; /**< the same however late they come; 0: not known */
} pp_session_limits;

/** How long a layer is replayed in a phase; `usual`: where the session does not say. */
int64_t pp_session_dwell(const pp_session *session, int64_t usual);

/** Holds a spec against the limits. Where it is past one `invalid` says so, with the code
 * PP_ERR_DENIED for what is not allowed at all. A session whose sampling is over is let end. */
void pp_session_allow(pp_session *session, const pp_session_limits *limits);

/** Whether its pods' layers are to be replayed (docs/replay.md): method Replay, and no other.
 */
bool pp_session_asks_replays(const pp_session *session);

/** Whether its pods' GPUs are to be sampled (docs/sampling.md): method Sampling, and Auto where the
 * operator is configured so. */
bool pp_session_asks_sampling(const pp_session *session, bool by_auto);

/** Whether the labels (an object of strings, NULL: none) satisfy the selector. */
bool pp_selector_matches(const pp_selector *selector, const json_t *labels);

/** As kubectl -l takes it: "app=dlrm,tier in (a,b),!old". Cut where there is no room. */
void pp_selector_format(const pp_selector *selector, char *out, size_t size);

/** Of the pods that the selector does not match the one that lacks least: for whoever mistyped a
 * label. Zeroed, none was seen. */
typedef struct pp_selector_near {
    size_t pods;    /**< that were looked at */
    size_t unmet;   /**< of the selector's demands, by the one of `text` */
    size_t letters; /**< by which its value differs from what the first of these asks for */
    char text[256]; /**< "pod dlrm-0 has app=dlmr, not app=dlrm"; "": none meets any demand */
} pp_selector_near;

/** Looks at one more pod of the namespace. */
void pp_selector_near_add(pp_selector_near *near, const pp_selector *selector, const char *pod,
                          const json_t *labels);

/**
 * The pod's containers to profile, as indices into spec.containers: those named in the spec (NULL:
 * no session), else those that ask for one of gpu_resources, else the first. Fills at most max and
 * returns how many; -1 with PP_ERR_NOT_FOUND where a named container does not exist.
 */
int pp_session_containers(const pp_session *session, const json_t *pod,
                          const pp_strings *gpu_resources, size_t *ret, size_t max, pp_error *err);

/** How the clock of a pod's node stands to the operator's (docs/clocks.md). */
typedef struct pp_session_clock {
    int64_t shift_ns; /**< taken out of the stamps of its latest batch; 0: nothing is */
    int64_t refused;  /**< batches, for it or for their stamps, as far as this process has seen */
    bool refusing;    /**< the latest one was */
    char why[PP_SESSION_CLOCK_WHY]; /**< why the last of these was; "": none was */
} pp_session_clock;

/** What keeps an injected pod from starting or reporting, and has lasted long enough to be said. */
typedef struct pp_session_pod_trouble {
    char reason[64]; /**< CamelCase */
    char text[560];  /**< a sentence that ends with what to do */
    bool of_pod;     /**< whoever runs the pod has to do it; else the operator's administrator */
} pp_session_pod_trouble;

/** One pod that the selector matches, in the session's namespace. Texts are borrowed. */
typedef struct pp_session_pod {
    /* from the pod */
    const char *name;
    const char *uid;
    const char *node;         /**< NULL: not scheduled */
    const char *session_uid;  /**< of the session that has it (pp_inject_holder); NULL: none */
    const char *session_name; /**< its name, where it is another's; NULL: not known */
    bool hooked;              /**< it carries the hook, for whichever session has it */
    int64_t created_ns;
    bool running;
    bool finished;       /**< phase Succeeded or Failed */
    bool failed;         /**< phase Failed */
    int64_t finished_ns; /**< end of its last container; 0: unknown */

    /* Why it is not injected, where it is not: pp_inject_explain, or what the webhook refused.
     * NULL: told from session_uid and created_ns. */
    const char *refusal_reason;
    const char *refusal;
    bool unexplained; /**< pp_inject_explain is still to say why it carries no hook */

    /* Its part in the session, on the operator's clock; 0: not yet. */
    bool gone;                   /**< it was deleted: only its part counts */
    pp_owner_kind owner;         /**< what made it */
    const char *owner_name;      /**< NULL: nothing */
    int64_t lived_from_ns;       /**< since when it is known to run */
    int64_t lived_to_ns;         /**< where it has ended: when it was seen last */
    int64_t heard_from_ns;       /**< since when its agent was there */
    int64_t heard_to_ns;         /**< when it was there last */
    const pp_session_span *idle; /**< when its agent was there, and no profiled container ran */
    size_t n_idle;
    bool trainer_waits;            /**< none runs now */
    const char *refused_why;       /**< why batches of it were refused; NULL: none were */
    const pp_session_clock *clock; /**< NULL: nothing is known of it */
    /** By how much its node's clock is ahead at least, or behind where that is negative, by its
     * agent's last words: by it the operator's certificate is not valid. 0: there are none. */
    int64_t clock_said_ns;
    const pp_session_pod_trouble *trouble; /**< NULL: none */
    bool awaits_agent; /**< its agent runs and has never connected: `trouble` says so in time */

    /* from the ingest and the store */
    const char *const *gpus; /**< UUIDs that its processes named */
    size_t n_gpus;
    int64_t rank;          /**< lowest of its processes; -1: unknown */
    bool connected;        /**< its agent is connected now */
    bool open_capture;     /**< its last batch did not end a capture */
    int64_t last_batch_ns; /**< when the last batch was stored; 0: none yet */
    int64_t events;        /**< stored */
    int64_t steps;         /**< stored, of the process that has fewest */
    int64_t dropped;       /**< marks lost before they reached the operator */
    int64_t epoch, batch;  /**< of its last step; -1: unknown */
    bool pm;               /**< PM sampling told something of it */
    const char *pm_why;    /**< why it tells nothing, or nothing more; NULL or "": not known */
    int64_t replays;       /**< of its layers */
    bool replaying;        /**< its last batch is of replays */
    const char *isolated;  /**< why its layers are not replayed; NULL or "": no reason */
} pp_session_pod;

/**
 * Fills what the pod's JSON says (texts borrowed from it) and zeroes the rest (rank, epoch and
 * batch -1). Returns -1 where it has no name or UID.
 */
int pp_session_pod_from_json(const json_t *pod, pp_session_pod *ret);

/** Why the pod carries no hook: CamelCase; *ret_message points to a sentence. NULL: not known yet.
 */
const char *pp_session_pod_refusal(const pp_session *session, const pp_session_pod *pod,
                                   const char **ret_message);

#define PP_SESSION_DOUBT 160

/** What the store holds of the session; all zero before its first batch. */
typedef struct pp_session_stats {
    int64_t first_step_ns; /**< start of the first sampled step */
    int64_t last_step_ns;  /**< end of the last one */
    int64_t last_batch_ns; /**< when the newest batch was stored */
    int64_t layers;        /**< distinct qualified names */
    int64_t steps;         /**< sampled */
    int64_t counted_steps; /**< between captures, of each pod those of the GPU that has fewest */
    int64_t events;
    int64_t dropped;
    int64_t paused_ns;            /**< held for replays, of the process that was held longest */
    int64_t samples_joined;       /**< raw metric samples used by the last solution */
    int64_t samples_stored;       /**< sample rows */
    int64_t samples_deduplicated; /**< windows folded into a row that was there */
    double samples_error;    /**< largest relative error of a mean from these rows; NaN: none */
    double samples_spread;   /**< how far windows are from their rows, as a share of a metric's
                                  range (estimate/items/estimates.h); NaN: not known */
    unsigned metrics_seen;   /**< bits of metrics with at least one raw sample */
    unsigned metrics_partly; /**< of these, those of which a GPU has none; parts of GPUs (MIG) do
                                  not count here */
    int64_t gpus;            /**< whole GPUs that were named */
    struct {
        int64_t count;         /**< GPUs without a sample ... */
        char gpu[97];          /**< ... and the first of them */
    } unseen[PP_METRIC_COUNT]; /**< of metrics_partly */
    bool samples_complete;     /**< nothing is left to ask Prometheus for (pp_plan_complete) */
    bool final_written;        /**< a solution marked final is in the store, with: */
    int64_t final_layers;      /**< distinct names; in as many phases, on as many pods: */
    int64_t final_phases, final_pods;
    int64_t final_job_means; /**< estimates of kind job with a mean */
    int64_t final_own;       /**< layers' estimates with a mean of their own */
    int64_t final_groups;    /**< groups' means, each once */
    int64_t judged;          /**< metrics of GPUs whose layers are told, or were to be ... */
    int64_t doubted;         /**< ... of these, such that something speaks against ... */
    int64_t predicted;       /**< ... and others that were held against data that was held out */
    double least_explained;  /**< share of that data's variance that is predicted, of the worst of
                                  them; NaN: there is none */
    char doubt[PP_SESSION_DOUBT]; /**< of one in doubt the metric, and what speaks against it; where
                                       there is none why one is not told; "": neither */
} pp_session_stats;

/** What makes pods that the session has profiled; the name is borrowed. */
typedef struct pp_session_owner {
    pp_owner_kind kind;
    const char *name;
    pp_owner_state state;
    bool managed; /**< pp_owner_is_managed, as far as is known */
} pp_session_owner;

/** What may be in a session's way, in the order in which Stalled names it. */
typedef enum pp_session_trouble {
    PP_TROUBLE_STORE = 0,    /**< the store cannot be reached */
    PP_TROUBLE_OPERATOR,     /**< its rights, its Service or its webhook's configuration lack */
    PP_TROUBLE_NOT_INJECTED, /**< pods match, and none of them is profiled */
    PP_TROUBLE_POD,          /**< an injected pod does not start, or does not report */
    PP_TROUBLE_PENDING,      /**< an injected pod has not started, for reasons of its own */
    PP_TROUBLE_NO_POD,       /**< no pod matches, or all have ended without a step */
    PP_TROUBLE_CLOCK,        /**< batches are refused, or an agent shut out, for its node's clock */
    PP_TROUBLE_NO_AGENT,     /**< pods run, and no agent of them is connected */
    PP_TROUBLE_LOST_AGENT,   /**< agents are connected, and that of a pod has gone */
    PP_TROUBLE_NO_STEP,      /**< agents are connected, and no step was sampled */
    PP_TROUBLE_NO_LAYER,     /**< steps are sampled, and no layer in them */
    PP_TROUBLE_NOT_SAMPLED,  /**< PM sampling alone was asked for, and no pod is sampled */
    PP_TROUBLE_METRICS,      /**< Prometheus cannot be asked, or has nothing */
    PP_TROUBLE_ATTRIBUTION,  /**< the values cannot be worked out */
    PP_TROUBLE_COUNT,
} pp_session_trouble;

typedef struct pp_session_observation {
    const pp_session *session;
    int64_t now_ns;
    const pp_session_pod *pods; /**< those that match or are injected for it; any order */
    size_t n_pods;
    const pp_session_owner *owners; /**< of the pods that it has profiled, gone ones too */
    size_t n_owners;
    pp_session_stats stats;         /**< the last known while the store is away */
    const char *creation_refused;   /**< why a pod of it could not be created; NULL: none lately */
    const char *store_error;        /**< NULL: reachable */
    const char *rights_error;       /**< what the API server denies the operator; NULL: nothing */
    const char *service_error;      /**< what is wrong with the operator's Service; NULL: nothing */
    const char *webhook_error;      /**< what is wrong with its webhook's configuration; NULL */
    bool unread;                    /**< what the store holds of it is not known to this process */
    const char *prometheus_error;   /**< NULL: reachable, or not asked yet */
    const char *prometheus_warning; /**< what its answers left out or warned of; NULL: nothing */
    int64_t prometheus_shift_ns;    /**< taken out of Prometheus' stamps; 0: nothing is */
    bool prometheus_off;            /**< no Prometheus is configured: layers are timed only */
    bool sampling_asked;            /**< pp_session_asks_sampling */
    bool prometheus_asked;          /**< at least one query for this session was answered */
    const char *solve_error;        /**< why the last attribution failed; NULL: it did not */
    unsigned solve_failures;        /**< in a row, while the store was reachable */
    int64_t serving_since_ns;       /**< since when this process takes connections; 0: long */
    int64_t expire_s; /**< after its end, where it is new and does not say; 0: it is kept */
    bool under_way;   /**< data came in, or is to, that no solution in the store has */
    /** As the last decision gave it back; zero where this process has made none yet. */
    int64_t trouble_since_ns[PP_TROUBLE_COUNT];
    const pp_selector_near *near; /**< where no pod matches; NULL: not looked for */
} pp_session_observation;

/** Waits, in ns; zero means the default. */
typedef struct pp_session_options {
    int64_t grace_ns;   /**< for a new pod after the last has finished; default 10 s */
    int64_t owner_ns;   /**< the same where its owner cannot be asked, or may be made anew; default
                           60 s */
    int64_t job_ns;     /**< and where a Job, which pauses longer, cannot be asked; default 6 min */
    int64_t drain_ns;   /**< for the last batches after sampling ended; default 60 s */
    int64_t finish_ns;  /**< from sampling's end until what is missing is not waited for any more;
                           default 15 min */
    int64_t solve_ns;   /**< and then for the last solution and the store; default 10 min */
    int64_t pm_ns;      /**< after a pod's last batch, for what PM sampling tells; default 10 s */
    int64_t poll_ns;    /**< between looks while something is awaited; default 2 s */
    int64_t watch_ns;   /**< between looks while it collects; default 5 s */
    int64_t stalled_ns; /**< what passes by itself within this is no reason to act; default 45 s */
    unsigned solve_tries; /**< of the final attribution; default 8 */
} pp_session_options;

typedef enum pp_condition_type {
    PP_CONDITION_ACCEPTED = 0,
    PP_CONDITION_INJECTED,
    PP_CONDITION_COLLECTING,
    PP_CONDITION_METRICS_AVAILABLE,
    PP_CONDITION_SAMPLED,      /**< only where it is asked for */
    PP_CONDITION_REPLAYED,     /**< the same */
    PP_CONDITION_EXPLAINED,    /**< only once layers' values could be judged */
    PP_CONDITION_CLOCK_SKEWED, /**< only where a clock is wrong */
    PP_CONDITION_STORED,
    PP_CONDITION_READY,
    PP_CONDITION_RECONCILING,
    PP_CONDITION_STALLED,
    PP_CONDITION_FINISHED, /**< True in the end, whatever the end */
    PP_CONDITION_SUCCEEDED,
    PP_CONDITION_FAILED,
    PP_CONDITION_COUNT,
} pp_condition_type;

typedef enum pp_condition_status {
    PP_CONDITION_UNKNOWN = 0,
    PP_CONDITION_TRUE,
    PP_CONDITION_FALSE,
} pp_condition_status;

typedef struct pp_condition {
    pp_condition_status status;
    char reason[64]; /**< "": the session has no such condition */
    char message[640];
    int64_t transition_ns; /**< kept while the status stays */
} pp_condition;

typedef struct pp_session_event {
    bool warning;
    char reason[64];
    char message[640];
    /** What it is about: this pod of the session's namespace, or "" for the session itself. */
    char pod_name[256];
    char pod_uid[64];
} pp_session_event;

typedef struct pp_session_target {
    char pod[256];
    char uid[64];
    char node[256];
    char gpus[512];  /**< UUIDs joined by "," as far as they fit */
    char reason[64]; /**< why it is not injected, or does not start or report; "" where it does */
    int64_t rank;    /**< -1: unknown */
    int64_t last_seen_ns;
    int64_t steps, events;
    bool injected, reporting;
} pp_session_target;

/** What to do and to say. Plain data but for `targets`. */
typedef struct pp_session_decision {
    pp_session_phase phase;
    bool sampling;      /**< agents shall sample: pass it on in `welcome` */
    bool collect;       /**< ask Prometheus for the samples of what is stored */
    bool finalise;      /**< solve once more and write the solution marked final */
    bool frozen;        /**< final already: the status stays as it is, nothing is said */
    bool urgent;        /**< phase or a condition changed: write the status at once */
    bool ask_owners;    /**< no pod is left: the next observation is to hold their state */
    int64_t requeue_ns; /**< look again after this time even if nothing happens; 0: no need */

    int64_t start_ns, sampling_end_ns, completion_ns;
    int64_t ends_at_ns, deadline_at_ns, suspended_at_ns;
    pp_session_span pauses[PP_SESSION_MAX_PAUSES];
    size_t n_pauses;
    int64_t expires_after_s; /**< 0: it does not expire by that */

    int64_t trouble_since_ns[PP_TROUBLE_COUNT]; /**< 0: there is no such trouble */

    pp_condition conditions[PP_CONDITION_COUNT];
    pp_session_event events[PP_SESSION_MAX_EVENTS];
    size_t n_events;

    int64_t pods_matched, pods_injected, pods_reporting;
    pp_session_stats stats;
    int64_t epoch, batch; /**< of the furthest target; -1: unknown */
    int64_t sampled_ns;   /**< of duration_ns, so far */
    int64_t paused_ns;    /**< held for replays, of the process that was held longest; whole ms */
    int64_t duration_ns;
    int64_t generation;
    char session_uid[64];

    pp_session_target *targets; /**< those with a reason first; at most PP_SESSION_MAX_TARGETS */
    size_t n_targets;
} pp_session_decision;

/**
 * The session's next step. Depends on nothing but its input; the same input gives the same output.
 * *ret is filled on success and freed with pp_session_decision_done. Fails with PP_ERR_NOMEM only.
 */
int pp_session_step(const pp_session_observation *obs, const pp_session_options *opt,
                    pp_session_decision *ret, pp_error *err);

/** Whether no pod matches for so long that `near` of the observation is to be filled. */
bool pp_session_seeks_near(const pp_session_observation *obs, const pp_session_options *opt);

/** Frees what a decision owns; a zeroed one is fine. */
void pp_session_decision_done(pp_session_decision *decision);

/**
 * The status as a JSON merge patch against the previous status: {"status": {...}} with the keys
 * that differ, null where one is to vanish; an empty object where nothing differs. New reference,
 * NULL when out of memory.
 */
json_t *pp_session_status_json(const pp_session_decision *decision, const json_t *previous);

/** Whether such a patch holds more than figures that grow while a session runs: what it says of the
 * session itself, how many pods it has, or what the decision's Events, which follow it, tell. */
bool pp_session_status_matters(const pp_session_decision *decision, const json_t *patch);

#endif
