/*
 * What an informer does, without its I/O: it says what to ask the server next, is told what came
 * back, keeps the cache and calls the handler. Tested with recorded streams.
 *
 *   loop: pp_reflector_next -> LIST:  send it, then pp_reflector_page or pp_reflector_failed
 *                              WATCH: send it, pp_reflector_bytes as they come, then
 *                                     pp_reflector_ended or pp_reflector_failed
 *                              WAIT:  so long, then ask again
 */
#ifndef PP_OPERATOR_KUBE_REFLECTOR_H
#define PP_OPERATOR_KUBE_REFLECTOR_H

#include "operator/kube/informer.h"

typedef struct pp_reflector pp_reflector;

typedef enum pp_reflector_what {
    PP_REFLECT_LIST,
    PP_REFLECT_WATCH,
    PP_REFLECT_WAIT
} pp_reflector_what;

typedef struct pp_reflector_step {
    pp_reflector_what what;
    int64_t wait_ms;            /**< WAIT */
    int limit;                  /**< LIST: 0 is everything in one answer */
    const char *continue_token; /**< LIST: borrowed, NULL for the first page */
    const char *query;          /**< WATCH: borrowed, percent-encoded */
    int64_t timeout_ms;         /**< WATCH: when the server ends it by itself */
    bool streams_list;          /**< WATCH: it begins with the whole list */
} pp_reflector_step;

/** `options` gives page_limit, max_objects, no_watch_list and the handler. `seed` 0: a random one.
 */
pp_reflector *pp_reflector_new(const pp_kube_informer_options *options, uint64_t seed,
                               pp_error *err);

/** Frees it and the cache without callbacks; not from within a handler. */
void pp_reflector_free(pp_reflector *reflector);

/** No handler is called any more. */
void pp_reflector_stop(pp_reflector *reflector);

/** What to do next; times are monotonic ns. What it lends stays valid until the next call. */
void pp_reflector_next(pp_reflector *reflector, int64_t now_ns, pp_reflector_step *ret_step);

/** A page of the list arrived. */
void pp_reflector_page(pp_reflector *reflector, const json_t *list, int64_t now_ns);

/** The list or the watch failed. */
void pp_reflector_failed(pp_reflector *reflector, const pp_error *error, int64_t now_ns);

/** Bytes of the watch. Negative with err set: end the watch and report that error. */
int pp_reflector_bytes(pp_reflector *reflector, const char *data, size_t n, pp_error *err);

/** The server ended the watch. */
void pp_reflector_ended(pp_reflector *reflector, int64_t now_ns);

/** Whether a streamed list is still on its way: if that takes too long, report a failure. */
bool pp_reflector_streaming(const pp_reflector *reflector);

bool pp_reflector_synced(const pp_reflector *reflector);
const void *pp_reflector_get(const pp_reflector *reflector, const char *key);
size_t pp_reflector_count(const pp_reflector *reflector);
void pp_reflector_each(const pp_reflector *reflector,
                       bool (*fn)(void *user, const char *key, const void *object), void *user);
pp_kube_informer_stats pp_reflector_get_stats(const pp_reflector *reflector);

#endif
