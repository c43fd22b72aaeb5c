/* When a session is solved again. Pure. */
#ifndef PP_CONTROLLER_SAMPLES_SOLVE_DUE_H
#define PP_CONTROLLER_SAMPLES_SOLVE_DUE_H

#include <stdbool.h>
#include <stdint.h>

/** How a session's solutions stand; times are monotonic ns. */
typedef struct pp_solve_state {
    bool solving;      /**< one is being made */
    bool unsolved;     /**< data came in that none has */
    bool finalise;     /**< the next one is the last */
    unsigned failures; /**< in a row */
    int64_t known_ns;  /**< since when this process has known the session */
    int64_t ended_ns;  /**< when the last one ended; 0: none has */
    int64_t took_ns;
    int64_t all_took_ns; /**< the last ones of all live sessions together */
} pp_solve_state;

/**
 * One every `interval_ns`, less often where they take more than a tenth of that, and where those of
 * all sessions would take more than a quarter of the time. The first one is made at once; where the
 * session is as new to this process as many others, as when it has just begun to lead, so that one
 * is made at a time. The last one waits for nobody, unless it has just failed: then twice as long
 * each time, from 2 s on, two minutes at most.
 */
bool pp_solve_is_due(const pp_solve_state *state, int64_t interval_ns, int64_t now_ns);

#endif
