/*
 * What a request of the HTTP API asks for, read from its path and query: no I/O. The paths are in
 * docs/openapi/api.yaml.
 */
#ifndef PP_OPERATOR_API_REQUEST_H
#define PP_OPERATOR_API_REQUEST_H

#include "common/json.h"
#include "operator/api/cursor.h"
#include "operator/api/problem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PP_API_MAX_PATH = 512, /**< bytes */
    PP_API_DEFAULT_LIMIT = 500,
    PP_API_MAX_LIMIT = 5000,
};

/** Texts are valid UTF-8 without control characters. */
typedef struct pp_api_request {
    pp_api_kind kind;
    char ns[64];     /**< "": all */
    char name[254];  /**< of the session, or the pattern; "": a list */
    char uid[65];    /**< of the session; "": the latest of that name */
    char pod[65];    /**< UID, of the timeline; "": the first */
    int64_t process; /**< of the timeline; -1: the first */
    int64_t limit;   /**< rows */
    pp_api_cursor cursor;
} pp_api_request;

/**
 * Reads a decoded path and the query's parts ("name=value", decoded). 0, or -1 with *ret_problem:
 * 404 for a path that is none, 414 for one that is too long, 400 for what is wrong in it, by its
 * name.
 */
int pp_api_parse(const char *path, const pp_strings *query, pp_api_request *ret,
                 pp_api_problem *ret_problem);

#endif
