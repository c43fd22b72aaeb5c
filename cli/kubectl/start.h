/* A ProfileSession for what somebody points at: a Deployment, a Job, pods by their labels. */
#ifndef PP_CLI_KUBECTL_START_H
#define PP_CLI_KUBECTL_START_H

#include "common/error.h"

#include <jansson.h>

typedef struct pp_start_request {
    const char *name;    /**< NULL: made by the API server, beginning with what is profiled */
    const char *labels;  /**< "app=dlrm,tier in (a, b)"; NULL: `owner`'s */
    const json_t *owner; /**< the object that is profiled; NULL with `labels` */
    const char *duration, *deadline, *method; /**< as in a spec; NULL: the default's */
    const char *budget;                       /**< percent; NULL: the default's */
} pp_start_request;

/** The object to create; a new reference. Fails, with the option's name in err->field, where no
 * selector can be made or a value is no number. */
int pp_start_session(const pp_start_request *request, json_t **ret, pp_error *err);

/** Its selector as `kubectl get -l` takes it; a new string, NULL where memory is out. */
char *pp_start_selector_text(const json_t *session);

/** Of a list of pods: how many run, or are about to, without the hook; those that have ended do not
 * count. */
size_t pp_start_count_without_hook(const json_t *pods);

#endif
