/*
 * How long the loop's turns take, the wait for something to do not counted. Everything in the
 * operator shares the loop: what is ready waits for as long as a turn takes.
 */
#ifndef PP_OPERATOR_STATE_TURNS_H
#define PP_OPERATOR_STATE_TURNS_H

#include "common/error.h"
#include "operator/http_server/metrics.h"

#include <stdint.h>
#include <uv.h>

typedef struct pp_turns {
    uv_prepare_t prepare;
    pp_meter *seconds; /**< NULL: not started */
    uint64_t began_ns; /**< the turn; 0: none has */
    uint64_t idle_ns;  /**< the loop's wait, in all, when it began */
} pp_turns;

/** Observes each turn from now on in `seconds`, a histogram; before the loop runs. It keeps no loop
 * running. */
int pp_turns_start(pp_turns *turns, uv_loop_t *loop, pp_meter *seconds, pp_error *err);

/** Run the loop until its handle is closed. One that was not started is fine. */
void pp_turns_stop(pp_turns *turns);

#endif
