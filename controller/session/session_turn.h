/* One call of pp_session_step: what it sees, counts and decides. */
#ifndef PP_CONTROLLER_SESSION_SESSION_TURN_H
#define PP_CONTROLLER_SESSION_SESSION_TURN_H

#include "controller/session/session.h"

/** The default of pp_session_options.stalled_ns. */
#define PP_SESSION_STALLED_NS INT64_C(45000000000)

/** Everything that is counted over the observed pods. */
typedef struct pp_session_tally {
    int64_t matched, injected, reporting, connected;
    int64_t unfinished;                     /**< injected and not finished */
    int64_t running;                        /**< of these, those whose containers run */
    int64_t awaiting;                       /**< running, and the agent has not come yet */
    int64_t waiting;                        /**< not injected, and its turn comes after another's */
    const pp_session_pod *first_running;    /**< NULL: none */
    const pp_session_pod *first_pending;    /**< injected, and not started; NULL: none */
    const pp_session_pod *first_lost;       /**< running, and its agent has gone; NULL: none */
    int64_t undrained;                      /**< unfinished, with a capture that has not ended */
    int64_t below_max;                      /**< unfinished, with fewer than steps.max steps */
    int64_t with_gpu;                       /**< reporting, with at least one GPU */
    int64_t with_whole;                     /**< of these, with one that is no MIG instance */
    int64_t pm;                             /**< reporting, and PM sampling told something of it */
    int64_t unsampled;                      /**< reporting, without, and why is known */
    const pp_session_pod *first_unsampled;  /**< of these; NULL: none */
    int64_t solving;                        /**< connected, with more to come, as far as is known */
    int64_t replayed;                       /**< reporting, and layers of it were replayed */
    int64_t unreplayed;                     /**< reporting, without, and why is known */
    const pp_session_pod *first_unreplayed; /**< of these; NULL: none */
    int64_t replaying;                      /**< unfinished, and its layers are being replayed */
    const pp_session_owner *maker;          /**< it will make another pod; NULL: none will */
    const pp_session_owner *unknown;        /**< it may, for all that is known; NULL: none */
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
    const char *late;      /**< what finishing went without, its time being over; NULL: nothing */
    char end_reason[64];   /**< why sampling ended, or the final phase's reason */
    char end_message[640];
} pp_session_turn;

#endif
