/*
 * How fast requests may follow each other: a rate with a burst, and pauses that the server asks
 * for. No clock: monotonic ns are given.
 */
#ifndef PP_OPERATOR_KUBE_PACE_H
#define PP_OPERATOR_KUBE_PACE_H

#include <stdint.h>

typedef struct pp_pace {
    int64_t interval_ns; /**< between two requests in the long run; 0: no limit */
    int64_t burst;       /**< requests at once after a rest; at least 1 */
    int64_t due_ns;      /**< when all that was taken is paid for */
} pp_pace;

/** `per_second` requests in the long run, `burst` after a rest; 0: no limit. */
void pp_pace_init(pp_pace *pace, double per_second, int64_t burst);

/** Takes one and returns 0, or returns the ns to wait until one can be taken. */
int64_t pp_pace_take(pp_pace *pace, int64_t now_ns);

/** None is to be taken before `until_ns`, and from then on one after another, without a burst; a
 * limit or none. Never shortens a pause. */
void pp_pace_pause(pp_pace *pace, int64_t until_ns);

#endif
