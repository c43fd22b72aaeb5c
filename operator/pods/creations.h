/*
 * Pods that the API server refused to their controllers: the Events of Jobs, ReplicaSets and the
 * like tell of them (reason FailedCreate). Such a controller's pods are left alone for a while,
 * since what was added may be what was refused.
 */
#ifndef PP_OPERATOR_PODS_CREATIONS_H
#define PP_OPERATOR_PODS_CREATIONS_H

#include "common/error.h"

typedef struct pp_operator pp_operator;

int pp_creations_start(pp_operator *op, pp_error *err);
void pp_creations_stop(pp_operator *op);

#endif
