/*
 * Which pods are of which sessions, kept as both come and go: a change costs what it concerns, not
 * a walk over all pods or all sessions.
 *
 * A pod is of a session of its namespace that it was injected for or whose selector matches it. Of
 * these sessions one at most has the pod: its holder (pp_inject_holder). A session that is final
 * has no pods.
 *
 * Sessions lie under one label that their selector demands, pods under all of theirs; what a
 * selector demands beyond that one is held against the few that meet there. A selector that demands
 * no value of any label is held against every pod of its namespace.
 *
 * No I/O. Sessions, views of pods and objects are borrowed: each stays valid until it is put again
 * under the same UID, or dropped.
 */
#ifndef PP_CONTROLLER_MATCH_INDEX_H
#define PP_CONTROLLER_MATCH_INDEX_H

#include "common/error.h"
#include "controller/injection/inject.h"
#include "controller/session/session.h"

#include <stddef.h>

typedef struct pp_match_index pp_match_index;

/**
 * The pod of this object has another holder now, or none. Not called for pods that have just come
 * or go. It must not change the index.
 */
typedef void (*pp_match_moved)(void *user, const void *object);

/** `moved` may be NULL. NULL when out of memory. */
pp_match_index *pp_match_index_new(pp_match_moved moved, void *user);

/** Accepts NULL. */
void pp_match_index_free(pp_match_index *index);

/** Puts a session, in place of what was known under its UID. Fails with PP_ERR_NOMEM only; the
 * session is then not in the index. */
int pp_match_put_session(pp_match_index *index, const pp_session *session, pp_error *err);

void pp_match_drop_session(pp_match_index *index, const char *uid);

/** The same for a pod; `object` is what the calls below give back for it. */
int pp_match_put_pod(pp_match_index *index, const char *uid, const pp_inject_pod_view *pod,
                     const void *object, pp_error *err);

void pp_match_drop_pod(pp_match_index *index, const char *uid);

/** The session with this UID; NULL: none. */
const pp_session *pp_match_session(const pp_match_index *index, const char *uid);

/** The object of the pod with this UID; NULL: none. */
const void *pp_match_pod(const pp_match_index *index, const char *uid);

/** The session that has the pod; NULL: none. */
const pp_session *pp_match_holder(const pp_match_index *index, const char *pod_uid);

/** The session that a pod of these labels (NULL: none), which is not in the index yet, would belong
 * to: pp_inject_matching. NULL: none. */
const pp_session *pp_match_new_pod(const pp_match_index *index, const char *namespace_,
                                   const json_t *labels);

/** Calls fn for each pod of the session, with its holder (NULL: none), until it returns false. */
void pp_match_each_pod(const pp_match_index *index, const char *session_uid,
                       bool (*fn)(void *user, const void *object, const pp_session *holder),
                       void *user);

/** Calls fn for the pods of a namespace, the last that came first, until it returns false. */
void pp_match_each_of_namespace(const pp_match_index *index, const char *namespace_,
                                bool (*fn)(void *user, const void *object), void *user);

/** Calls fn for each session that the pod is of, until it returns false. */
void pp_match_each_session(const pp_match_index *index, const char *pod_uid,
                           bool (*fn)(void *user, const pp_session *session), void *user);

#endif
