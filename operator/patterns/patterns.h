/*
 * ConsumptionPatterns: made of what the store has of a workload's sessions, written into the store
 * and as an object of the workload's namespace, and summed up in the session's status. The store
 * has all of it, so an object that is gone is made anew.
 */
#ifndef PP_OPERATOR_PATTERNS_PATTERNS_H
#define PP_OPERATOR_PATTERNS_PATTERNS_H

#include "operator/state/state.h"

extern const pp_kube_resource PP_CONSUMPTIONPATTERNS;

/** The session (`key`: namespace/name) has Succeeded, and the store says so: its workloads'
 * patterns are made anew. */
void pp_patterns_make_of(pp_operator *op, const char *uid, const char *key);

/** This process leads now: patterns that another one left unmade are made, and objects that are
 * gone. One workload after the other. */
void pp_patterns_resume(pp_operator *op);
/** After the calls have ended. */
void pp_patterns_done_all(pp_operator *op);

#endif
