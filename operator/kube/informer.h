/*
 * A local copy of a collection of objects, kept true by list and watch. What is kept per object is
 * whatever the caller's decode function makes of it, so that a pod costs only the fields used.
 */
#ifndef PP_OPERATOR_KUBE_INFORMER_H
#define PP_OPERATOR_KUBE_INFORMER_H

#include "operator/kube/client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pp_kube_informer pp_kube_informer;

/** What the cache calls back; keys are "namespace/name", or "name" for cluster-scoped objects. */
typedef struct pp_kube_handler {
    /**
     * Makes what is kept of an object; it must not keep `object` itself. Returns NULL with err
     * untouched to leave the object out of the cache (one that was in it is deleted from it), or
     * NULL with err set when it cannot be decoded (what is in the cache stays as it was).
     */
    void *(*decode)(void *user, const json_t *object, pp_error *err);
    void (*free_object)(void *object);
    /** The objects stay owned by the cache; `old` is freed after the call. Each may be NULL. */
    void (*on_add)(void *user, const char *key, const void *object);
    void (*on_update)(void *user, const char *key, const void *old, const void *object);
    /** `last` is the object's last state as the server sent it, or else as it was in the cache. */
    void (*on_delete)(void *user, const char *key, const void *last);
    void (*on_synced)(void *user); /**< once, when the first full list is in the cache */
    /** For the log: what went wrong (an undecodable object, a failed list); we try again by itself.
     */
    void (*on_error)(void *user, const pp_error *error);
    void *user;
} pp_kube_handler;

typedef struct pp_kube_informer_options {
    const pp_kube_resource *resource; /**< its strings outlive the informer */
    const char *ns;                   /**< NULL: all namespaces */
    const char *label_selector;
    const char *field_selector;
    int page_limit;          /**< objects per page of a list; 0: 250 */
    size_t max_objects;      /**< in the cache, more are left out and reported; 0: 200,000 */
    bool no_watch_list;      /**< never ask for a streamed list */
    int64_t turn_ns;         /**< for what a watch brings, in a turn of the loop; 0: 5 ms */
    pp_kube_handler handler; /**< copied */
} pp_kube_informer_options;

/** Starts listing and watching at once; the client outlives it. NULL on error. */
pp_kube_informer *pp_kube_informer_new(pp_kube_client *client,
                                       const pp_kube_informer_options *options, pp_error *err);

/** Stops without further callbacks; may be called from a handler. Run the loop until closed. */
void pp_kube_informer_free(pp_kube_informer *informer);

/** Whether the first full list is in the cache. */
bool pp_kube_informer_synced(const pp_kube_informer *informer);

/** What is kept under a key, borrowed until the loop's next turn; NULL when absent. */
const void *pp_kube_informer_get(const pp_kube_informer *informer, const char *key);

size_t pp_kube_informer_count(const pp_kube_informer *informer);

/** Calls fn for every object until it returns false. fn must not free the informer. */
void pp_kube_informer_each(const pp_kube_informer *informer,
                           bool (*fn)(void *user, const char *key, const void *object), void *user);

typedef struct pp_kube_informer_stats {
    uint64_t lists;   /**< full lists completed, streamed ones included */
    uint64_t watches; /**< watches started */
    uint64_t events;  /**< events taken from watches, bookmarks included */
    uint64_t errors;  /**< failed lists and watches, undecodable objects */
} pp_kube_informer_stats;

pp_kube_informer_stats pp_kube_informer_get_stats(const pp_kube_informer *informer);

#endif
