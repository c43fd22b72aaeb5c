/*
 * The HTTP API (docs/api.md): requests in, the right to read asked for, results read, answers out.
 * Every replica serves it, whoever leads.
 */
#ifndef PP_OPERATOR_RESULTS_RESULTS_H
#define PP_OPERATOR_RESULTS_RESULTS_H

#include "common/error.h"
#include "operator/http_server/server.h"

typedef struct pp_operator pp_operator;

/** Where the configuration has it, after op->kube and before op->server; else op->results stays
 * NULL. */
int pp_results_start(pp_operator *op, pp_error *err);
/** Before op->kube is freed; requests that are not answered end. */
void pp_results_stop(pp_operator *op);

/** Answers the request, now or later. */
void pp_results_request(pp_operator *op, pp_http_id id, const pp_http_api_request *request);
/** Nobody waits for its answer any more. */
void pp_results_gone(pp_operator *op, pp_http_id id);

#endif
