/* What every verb of the plugin takes: which cluster, as whom, where the operator is. */
#ifndef PP_CLI_KUBECTL_OPTIONS_H
#define PP_CLI_KUBECTL_OPTIONS_H

#include "cli/kubectl/kubectl.h"
#include "cli/kubectl/session_api.h"

#include <argp.h>

typedef struct pp_kubectl_options {
    pp_kubectl kubectl;
    const char *system, *account, *token_file;
    char *owned[24]; /* texts that are made of arguments */
    size_t n_owned;
    char *namespace, *token, *found_system, *found_service;
    pp_session_api_where where; /**< after pp_kubectl_options_find() */
} pp_kubectl_options;

/** The options, to be a child of each verb's argp; its input is a pp_kubectl_options. */
const struct argp *pp_kubectl_options_argp(void);

/** Finds out which namespace is meant, where the operator is, and reads the token file. */
int pp_kubectl_options_find(pp_kubectl_options *options, pp_error *err);

void pp_kubectl_options_done(pp_kubectl_options *options);

#endif
