/* Problem documents (RFC 9457), what an error is answered with. No I/O. */
#ifndef PP_OPERATOR_API_PROBLEM_H
#define PP_OPERATOR_API_PROBLEM_H

#include "common/buf.h"

typedef enum pp_api_trouble {
    PP_API_INVALID = 0,  /**< 400 */
    PP_API_UNAUTHORIZED, /**< 401 */
    PP_API_FORBIDDEN,    /**< 403 */
    PP_API_NOT_FOUND,    /**< 404 */
    PP_API_URI_TOO_LONG, /**< 414 */
    PP_API_BUSY,         /**< 429 */
    PP_API_INTERNAL,     /**< 500 */
    PP_API_UNAVAILABLE,  /**< 503 */
    PP_API_TROUBLES,
} pp_api_trouble;

typedef struct pp_api_problem {
    pp_api_trouble trouble;
    char field[64]; /**< the parameter that is wrong; "": none is */
    char detail[256];
} pp_api_problem;

#define PP_API_PROBLEM_TYPE "application/problem+json"

int pp_api_trouble_status(pp_api_trouble trouble);

/** Sets a problem and returns -1. The detail is cut where it is too long. */
__attribute__((format(printf, 4, 5))) int pp_api_problem_set(pp_api_problem *ret,
                                                             pp_api_trouble trouble,
                                                             const char *field, const char *fmt,
                                                             ...);

/** Appends the document. */
int pp_api_problem_write(const pp_api_problem *problem, pp_buf *out, pp_error *err);

#endif
