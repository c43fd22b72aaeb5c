/* Shared by the files of this folder; not for anybody else. */
#ifndef PP_OPERATOR_KUBE_INTERNAL_H
#define PP_OPERATOR_KUBE_INTERNAL_H

#include "common/error.h"

#include <jansson.h>
#include <stddef.h>

/** Formatted text, newly allocated; NULL when out of memory. */
__attribute__((format(printf, 1, 2))) char *kube_format(const char *fmt, ...);

/** Percent-encodes all but unreserved characters; newly allocated; NULL when out of memory. */
char *kube_encode(const char *text);

/** Removes white space at both ends, in place; returns text. */
char *kube_trim(char *text);

/**
 * JSON as the API server sends it. Unlike pp_json_parse it accepts \u0000 inside strings: anybody
 * may write that into an annotation, and one such object must not make a whole list unreadable.
 */
json_t *kube_json_parse(const char *text, size_t n, pp_error *err);

#endif
