/* Sessions and consumption patterns for somebody to read. */
#ifndef PP_CLI_KUBECTL_STATUS_H
#define PP_CLI_KUBECTL_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/** A line of each session of a list. */
void pp_status_print_list(FILE *to, const json_t *sessions);

/** One session: phase, pods, progress, what is waited for or wrong, its pods, and where to read
 * on. */
void pp_status_print(FILE *to, const json_t *session);

/** A ConsumptionPattern: step, idle time, what bounds it, metrics. */
void pp_status_print_pattern(FILE *to, const json_t *pattern);

/** One line: "Collecting, 2/2 pods, 45s/2m". Static, until the next call. */
const char *pp_status_line(const json_t *session);

/** Whether a session is over; `ret_succeeded` how. */
bool pp_status_is_over(const json_t *session, bool *ret_succeeded);

/** A session's condition of this type, borrowed; NULL: none. */
const json_t *pp_status_condition(const json_t *session, const char *type);

#endif
