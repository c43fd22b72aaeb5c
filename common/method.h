/*
 * The methods that a value can come from, and their names: one that a session, a run or the command
 * line asks for, and one that results carry. Every list of methods is made from this table.
 */
#ifndef PP_COMMON_METHOD_H
#define PP_COMMON_METHOD_H

#include "common/error.h"

#include <stddef.h>

typedef enum pp_method {
    PP_METHOD_NONE = 0,   /**< of a value that is not known; its mean and standard error are NaN */
    PP_METHOD_AUTO,       /**< to be asked for only: each value by whichever method can tell it */
    PP_METHOD_JOB,        /**< average over the job's windows */
    PP_METHOD_REGRESSION, /**< of window values on shares of time (estimate/regression) */
    PP_METHOD_SAMPLING,   /**< performance monitors joined with kernels (estimate/sampling) */
    PP_METHOD_REPLAY,     /**< windows within replays of one layer (estimate/replay) */
    PP_METHOD_RECORDS,    /**< of results only: kernel records, of GPUUtil */
    PP_METHOD_COUNT,
    PP_METHOD_LAST_ASKED = PP_METHOD_REPLAY, /**< from PP_METHOD_AUTO on */
} pp_method;

/** The time that a value is a mean over. */
typedef enum pp_basis {
    PP_BASIS_NONE = 0,
    PP_BASIS_ELAPSED, /**< from where the GPU came to its item's work to where it left it */
    PP_BASIS_BUSY,    /**< of that, in which kernels of the item ran */
} pp_basis;

/** "elapsed" or "busy"; NULL for PP_BASIS_NONE. */
const char *pp_basis_name(pp_basis basis);

/** As results have it: "job"; "none" for PP_METHOD_NONE and anything that is no method. */
const char *pp_method_name(pp_method method);

/** As spec.method has it: "Job"; "" for what cannot be asked for. */
const char *pp_method_spec_name(pp_method method);

/** Of the spec's name, or of the one it had until 0.1.0 (Direct, Fine, Isolated); -1 where it is
 * none. */
int pp_method_from_spec_name(const char *name, pp_method *ret);

/** The same for what a person wrote; the error names `field` and all that can be asked for. */
int pp_method_parse(const char *text, const char *field, pp_method *ret, pp_error *err);

/** All that can be asked for, for a message: "Auto, Job, ... and ..."; out is NUL-terminated. */
void pp_method_spec_names(char *out, size_t size);

#endif
