/* A pod is created: which session, which patch. */
#ifndef PP_OPERATOR_ADMISSION_H
#define PP_OPERATOR_ADMISSION_H

#include "controller/inject.h"
#include "operator/http_server/server.h"

typedef struct pp_operator pp_operator;

void pp_admission_review(pp_operator *op, pp_http_id id, const pp_http_review *review);
/** What injection needs to know of us. */
void pp_admission_options(const pp_operator *op, pp_inject_options *ret);

#endif
