/* What session.c decides and session_say.c puts into words. Private to controller/session*. */
#ifndef PP_CONTROLLER_SESSION_INTERNAL_H
#define PP_CONTROLLER_SESSION_INTERNAL_H

#include "controller/session.h"

/** What to do where Prometheus answers and has nothing. */
#define PP_SESSION_NO_SAMPLE_HINT                                                                  \
    "check that it scrapes the exporter, and that prometheus.preset in the operator's "            \
    "configuration is the one with the exporter's metric and label names"

/** Why there is no sample of processes that named MIG instances alone. */
#define PP_SESSION_MIG_HINT                                                                        \
    "the training processes ran on MIG instances (MIG-...), and the exporter's series of these "   \
    "name the whole GPU and an instance number instead; use whole GPUs for metrics of layers"

/** Everything that is counted over the observed pods. */
typedef struct pp_session_tally {
    int64_t matched, injected, reporting, connected;
    int64_t unfinished;                    /**< injected and not finished */
    int64_t undrained;                     /**< unfinished, with a stretch that has not ended */
    int64_t below_max;                     /**< unfinished, with fewer than steps.max steps */
    int64_t with_gpu;                      /**< reporting, with at least one GPU */
    int64_t with_whole;                    /**< of these, with one that is no MIG instance */
    int64_t fine;                          /**< reporting, and fine sampling told something of it */
    int64_t unsampled;                     /**< reporting, without, and why is known */
    const pp_session_pod *first_unsampled; /**< of these; NULL: none */
    int64_t solving;                       /**< connected, with more to come, as far as is known */
    int64_t replayed;                      /**< reporting, and layers of it were replayed */
    int64_t unreplayed;                    /**< reporting, without, and why is known */
    const pp_session_pod *first_unreplayed; /**< of these; NULL: none */
    int64_t replaying;                      /**< unfinished, and its layers are being replayed */
    int64_t quiet_since;                    /**< the last sign of life of any pod */
} pp_session_tally;

/** One call of pp_session_step. */
typedef struct pp_session_turn {
    const pp_session_observation *obs;
    const pp_session *session;
    pp_session_options opt; /**< defaults filled in */
    pp_session_tally tally;
    pp_session_decision *to;
    pp_session_phase from; /**< the phase before */
    bool held;             /**< sampling goes on past its end, for replays that are under way */
    char end_reason[64];   /**< why sampling ended, or the final phase's reason */
    char end_message[400];
} pp_session_turn;

/** "InvalidSpec", or "NotAllowed". */
const char *pp_session_invalid_reason(const pp_session *session);

/** Whether a pod carries this session's hook. */
bool pp_session_pod_injected(const pp_session *session, const pp_session_pod *pod);

/** Whether the pod takes part: a pod that ended without the hook does not matter any more. */
bool pp_session_pod_counts(const pp_session *session, const pp_session_pod *pod);

/** Fills conditions and events of the turn's decision. */
void pp_session_say(pp_session_turn *turn);

/** Fills the targets; fails with PP_ERR_NOMEM. */
int pp_session_list_targets(pp_session_turn *turn, pp_error *err);

/** A condition as the previous status had it; zeroed where it had none. */
void pp_session_previous_condition(const pp_session *session, pp_condition_type type,
                                   pp_condition *ret);

/** "Accepted", ... */
const char *pp_session_condition_name(pp_condition_type type);

#endif
