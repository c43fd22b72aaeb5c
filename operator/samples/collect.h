/* Raw samples from Prometheus into the store. */
#ifndef PP_OPERATOR_SAMPLES_COLLECT_H
#define PP_OPERATOR_SAMPLES_COLLECT_H

#include "operator/cache/session_runtime.h"

/** Asks what is due. */
void pp_collect_tick(pp_runtime *runtime);

#endif
