/*
 * Leader election without its I/O and without a clock: what was seen and when decides what to do.
 * Times are monotonic ns.
 */
#ifndef PP_OPERATOR_KUBE_LEASE_STATE_H
#define PP_OPERATOR_KUBE_LEASE_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum { PP_LEASE_TEXT_MAX = 256 };

/** A Lease's spec as it is on the server; times in it are text that we only compare. */
typedef struct pp_lease_record {
    char holder[PP_LEASE_TEXT_MAX]; /**< "" when released */
    int64_t duration_s;
    char acquire_time[64];
    char renew_time[64];
    int64_t transitions;
} pp_lease_record;

typedef struct pp_lease_state {
    char identity[PP_LEASE_TEXT_MAX];
    int64_t lease_ns, renew_deadline_ns, retry_ns;
    bool seen;                /**< observed holds something */
    pp_lease_record observed; /**< as last seen */
    int64_t observed_ns;      /**< when it was seen to change */
    bool leading;
    int64_t renewed_ns; /**< when the request that last renewed it was sent */
} pp_lease_state;

typedef enum pp_lease_action {
    PP_LEASE_CREATE, /**< there is none: create it */
    PP_LEASE_UPDATE, /**< it is ours, released, or ran out: write ourselves into it */
    PP_LEASE_WAIT,   /**< somebody holds it: look again after retry_ns */
} pp_lease_action;

void pp_lease_state_init(pp_lease_state *state, const char *identity, int64_t lease_ms,
                         int64_t renew_deadline_ms, int64_t retry_ms);

/** Takes in what the server holds (NULL: nothing) and says what to do about it. */
pp_lease_action pp_lease_observe(pp_lease_state *state, const pp_lease_record *record,
                                 int64_t now_ns);

/** The record to write for PP_LEASE_CREATE and PP_LEASE_UPDATE; `wall_time` is RFC 3339. */
void pp_lease_fill(const pp_lease_state *state, const char *wall_time, pp_lease_record *ret_record);

/**
 * The write of `record`, sent at sent_ns, was accepted at now_ns. Returns true when we begin to
 * lead by it; false when we led already, or when the answer came too late to count.
 */
bool pp_lease_written(pp_lease_state *state, const pp_lease_record *record, int64_t sent_ns,
                      int64_t now_ns);

/** Whether we lead and have not failed to renew for longer than the deadline. */
bool pp_lease_leads(const pp_lease_state *state, int64_t now_ns);

/**
 * Ends our term where it must end: the deadline passed, or somebody else holds the Lease. Returns
 * true when a term ended by this call.
 */
bool pp_lease_lost(pp_lease_state *state, int64_t now_ns);

#endif
