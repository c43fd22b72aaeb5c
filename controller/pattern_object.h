/* ConsumptionPattern as objects of the Kubernetes API (crds/consumptionpattern.yaml). No I/O. */
#ifndef PP_CONTROLLER_PATTERN_OBJECT_H
#define PP_CONTROLLER_PATTERN_OBJECT_H

#include "estimate/pattern/workloads.h"

#include <jansson.h>
#include <stddef.h>

/** Metadata and spec, to be created. A new reference; NULL where memory is out. */
json_t *pp_pattern_object(const pp_pattern *pattern);

/** Its figures alone: `steps`, `bound`, `boundLead`, `shares`, `step`, `bounds`, `time`, `metrics`,
 * as in the object's status. A new reference; NULL where memory is out. */
json_t *pp_pattern_figures(const pp_pattern *pattern);

/** {"status": ...}: all that was measured, as JSON numbers of 17 digits; conditions have changed at
 * `now_ns` (since 1970). */
json_t *pp_pattern_status(const pp_pattern *pattern, int64_t now_ns);

/** Conditions of `status` whose status is as in `before` (NULL: none), the object's own so far,
 * keep the time at which it changed. */
void pp_pattern_keep_times(json_t *status, const json_t *before);

/** What a session's status says of one of its workloads: `workload` ("Job/dlrm"), `pattern` (its
 * name), `bound`, `milliseconds` of a step, `idleShare`. */
json_t *pp_pattern_summary(const pp_pattern *pattern);

#endif
