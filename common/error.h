/*
 * One error object for the whole project.
 *
 * A function that can fail takes `pp_error *err` as its last parameter and returns a negative
 * value (or NULL) when it failed; `err` is then set. It is a plain value: it owns nothing, needs
 * no cleanup, and may be copied. Passing NULL is allowed where the caller only wants the result.
 * Layers add context on the way up with pp_error_prefix(); only the outermost one logs.
 */
#ifndef PP_COMMON_ERROR_H
#define PP_COMMON_ERROR_H

#include <stdbool.h>

/** What kind of failure it is: decides whether to try again and which HTTP status to answer. */
typedef enum pp_error_code {
    PP_OK = 0,
    PP_ERR_INVALID,      /**< the input is wrong; `field` names where */
    PP_ERR_NOT_FOUND,    /**< the thing asked for does not exist */
    PP_ERR_CONFLICT,     /**< somebody else changed it meanwhile */
    PP_ERR_GONE,         /**< a resource version or token expired: list again */
    PP_ERR_DENIED,       /**< authenticated, but not allowed */
    PP_ERR_UNAUTHORIZED, /**< not authenticated */
    PP_ERR_TOO_LARGE,    /**< a limit was passed */
    PP_ERR_UNAVAILABLE,  /**< a peer is away: try again later */
    PP_ERR_TIMEOUT,      /**< no answer in time: try again later */
    PP_ERR_NOMEM,        /**< out of memory */
    PP_ERR_IO,           /**< an operating-system call failed */
    PP_ERR_INTERNAL,     /**< a state that cannot be; a defect of ours */
} pp_error_code;

typedef struct pp_error {
    pp_error_code code;
    char field[160];   /**< path of the offending input, e.g. "spec.duration"; may be empty */
    char message[480]; /**< for a person; truncated when longer */
} pp_error;

/** Sets err (when not NULL) and returns -1, so that `return pp_error_set(...)` reads well. */
__attribute__((format(printf, 3, 4))) int pp_error_set(pp_error *err, pp_error_code code,
                                                       const char *fmt, ...);

/** As pp_error_set with PP_ERR_INVALID and the name of the field that is wrong. */
__attribute__((format(printf, 3, 4))) int pp_error_field(pp_error *err, const char *field,
                                                         const char *fmt, ...);

/** Sets err from errno with PP_ERR_IO (PP_ERR_NOMEM for ENOMEM); returns -1. */
__attribute__((format(printf, 2, 3))) int pp_error_errno(pp_error *err, const char *fmt, ...);

/** Out of memory; returns -1. */
int pp_error_nomem(pp_error *err);

/** Puts "context: " before the message; returns -1. */
__attribute__((format(printf, 2, 3))) int pp_error_prefix(pp_error *err, const char *fmt, ...);

/** Back to "no error". */
void pp_error_clear(pp_error *err);

/** Whether trying the same thing again later can succeed. */
bool pp_error_retryable(const pp_error *err);

/** The code's name in kebab case, e.g. "too-large"; used in logs and on the wire. */
const char *pp_error_code_name(pp_error_code code);

#endif
