/* The operator as a whole: its edges made and wired, its parts started and stopped in order. */
#ifndef PP_OPERATOR_OPERATOR_H
#define PP_OPERATOR_OPERATOR_H

#include "operator/state/state.h"

int pp_operator_start(pp_operator *op, uv_loop_t *loop, const pp_config *config, pp_error *err);
/**
 * Begins a clean stop, as a signal asks for: the Lease is handed over at once, pods are reviewed
 * for http.drain more, since it takes the cluster a while to send reviews elsewhere; then
 * pp_operator_stop.
 */
void pp_operator_drain(pp_operator *op);
/** Stops at once: nothing new is taken, the Lease is handed over, handles are closed. */
void pp_operator_stop(pp_operator *op);
/** After the loop has run out. */
void pp_operator_done(pp_operator *op);

#endif
