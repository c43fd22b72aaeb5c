/* What is missing on a cluster for a session to tell what it should: no I/O. */
#ifndef PP_CLI_KUBECTL_DOCTOR_H
#define PP_CLI_KUBECTL_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/**
 * Findings from facts (facts.h): an array of {"what", "evidence", "remedy", "of"}, the most basic
 * first: what hides behind another finding is not told beside it. With `session` only that
 * session's own and the cluster's. `of` is what it is about, e.g. "session dlrm". One that sessions
 * do without has "warning": true, and comes last. A new reference, NULL where memory is out.
 */
json_t *pp_doctor_findings(const json_t *facts, const char *session);

/** Whether there are none but warnings. */
bool pp_doctor_is_well(const json_t *findings);

/** For people: each finding, and what could not be looked at. */
void pp_doctor_print(FILE *to, const json_t *findings, const json_t *facts);

#endif
