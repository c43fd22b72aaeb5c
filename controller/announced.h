/*
 * Sessions that are about to be created: admission has seen them, the watch has not. A pod that is
 * created right after its session, in the same `kubectl apply`, may be reviewed before the watch
 * brings the session; it then waits for that one, and no other pod has to.
 *
 * No I/O and no clock: times are monotonic, in ns.
 */
#ifndef PP_CONTROLLER_ANNOUNCED_H
#define PP_CONTROLLER_ANNOUNCED_H

#include "common/error.h"
#include "controller/session/session.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PP_ANNOUNCED_MAX = 1024, /* past it the oldest is forgotten */
    PP_ANNOUNCED_EACH = 128, /* of a namespace; past it its oldest */
};

/** How long after its announcement a session may still come, in ns: what creates it goes through
 * the webhooks of others and is written to etcd, by an API server that may be busy. */
#define PP_ANNOUNCED_FOR INT64_C(10000000000)

typedef struct pp_announced pp_announced;

/** NULL when out of memory. */
pp_announced *pp_announced_new(void);

/** Accepts NULL. */
void pp_announced_free(pp_announced *announced);

/**
 * Notes a session of this namespace from the object of its admission review, which may have no UID,
 * and a generateName in place of a name. Borrows the object. What cannot be decoded, or would match
 * no pod, is not noted: -1 with err set. One of the same name is noted once.
 */
int pp_announced_add(pp_announced *announced, const char *namespace_, const json_t *object,
                     int64_t now_ns, pp_error *err);

/** The watch has brought this session: it is announced no more. */
void pp_announced_came(pp_announced *announced, const pp_session *session);

/** Until when a pod of this namespace with these labels (NULL: none) is to wait for a session that
 * matches it; 0: there is none. */
int64_t pp_announced_until(const pp_announced *announced, const char *namespace_,
                           const json_t *labels, int64_t now_ns);

/** The name of the session that it waits for, the one announced last; NULL: there is none, or its
 * name is to be generated. Borrowed until the next call that is not const. */
const char *pp_announced_name(const pp_announced *announced, const char *namespace_,
                              const json_t *labels, int64_t now_ns);

#endif
