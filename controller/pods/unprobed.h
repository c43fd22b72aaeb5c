/*
 * What makes pods that are created without the probe for a while, since others of it did not start
 * with it, or were refused. No I/O and no clock.
 */
#ifndef PP_CONTROLLER_PODS_UNPROBED_H
#define PP_CONTROLLER_PODS_UNPROBED_H

#include "controller/injection/inject.h"

#include <stdint.h>

#define PP_UNPROBED_MAX 4096 /* owners; past it the one whose time is over first is forgotten */

typedef struct pp_unprobed pp_unprobed;

/** One owner. Texts and labels are copied; times are of whatever clock the caller has. */
typedef struct pp_unprobed_owner {
    char uid[64];
    char ns[64];
    char what[330];            /**< "Job dlrm" */
    pp_inject_refusal refusal; /**< of its pods */
    int64_t since_ns, until_ns;
    int64_t told_ns;      /**< when it was last added */
    const json_t *labels; /**< of its pods; NULL: not known */
} pp_unprobed_owner;

pp_unprobed *pp_unprobed_new(void);
/** Accepts NULL. */
void pp_unprobed_free(pp_unprobed *unprobed);

/**
 * Adds an owner, from now on until until_ns. Of one that is there already the end is put off, and
 * its words and labels are replaced. Returns -1 without memory.
 */
int pp_unprobed_add(pp_unprobed *unprobed, const pp_unprobed_owner *owner, int64_t now_ns);

/** The owner of this namespace with this UID; NULL: none, its time is over, or the UID is NULL. */
const pp_unprobed_owner *pp_unprobed_find(const pp_unprobed *unprobed, const char *ns,
                                          const char *uid, int64_t now_ns);

/**
 * The owner whose pods the session is to have, and which was told of last, not before since_ns;
 * NULL: none.
 */
const pp_unprobed_owner *pp_unprobed_of(const pp_unprobed *unprobed, const pp_session *session,
                                        int64_t since_ns);

/** Forgets those whose time is over. */
void pp_unprobed_sweep(pp_unprobed *unprobed, int64_t now_ns);

size_t pp_unprobed_count(const pp_unprobed *unprobed);

#endif
