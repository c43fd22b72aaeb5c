/* What the store keeps of sessions and their pods, to and from. */
#ifndef PP_OPERATOR_SAMPLES_RECORD_H
#define PP_OPERATOR_SAMPLES_RECORD_H

#include "operator/cache/pod.h"
#include "operator/cache/session_runtime.h"

int pp_record_session(pp_runtime *runtime, const pp_session *session,
                      const pp_session_decision *decision);
void pp_record_target(pp_runtime *runtime, const pp_pod *pod);
/** Reads what an earlier process left; work->restored is set and the session looked at again. */
void pp_record_restore(pp_runtime *runtime);
void pp_record_load_stats(pp_runtime *runtime);

#endif
