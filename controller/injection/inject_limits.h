/* What a namespace's LimitRanges say of containers. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_LIMITS_H
#define PP_CONTROLLER_INJECTION_INJECT_LIMITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** A namespace's objects of these kinds as the API has them; borrowed. */
typedef struct pp_inject_limits {
    const json_t *const *ranges; /**< LimitRange */
    size_t n_ranges;
    const json_t *const *quotas; /**< ResourceQuota */
    size_t n_quotas;
} pp_inject_limits;

/** What LimitRanges say of one resource of every container; texts are borrowed, NULL: nothing. */
typedef struct pp_inject_bounds {
    const char *min, *max; /**< the narrowest; a request, or a limit, must be there and within */
    bool ratio;            /**< limit / request is bounded: both must be there */
    bool default_limit;    /**< a container without a limit gets one */
    bool default_request;
} pp_inject_bounds;

/** `limits` may be NULL: nothing is bounded. */
void pp_inject_bounds_of(const pp_inject_limits *limits, const char *resource,
                         pp_inject_bounds *ret);

/** What is added counts for these resources alone: CPU, memory and disk. */
enum { PP_INJECT_COUNTED = 3 };
extern const char *const pp_inject_counted[PP_INJECT_COUNTED];

/** Whether an item of a LimitRange is of that type. */
bool pp_inject_is_type(const json_t *item, const char *type);

/** Whether what is added counts for a resource. */
bool pp_inject_is_counted(const char *resource);

/** The other resources of which LimitRanges speak, GPUs for one, each with "0": a container that
 * does not state them is given as many as the training's own may have. New reference. */
json_t *pp_inject_others(const pp_inject_limits *limits);
/** The same of one item of a LimitRange, into an object. */
void pp_inject_add_others(const json_t *item, json_t *others);

#endif
