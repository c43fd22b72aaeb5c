/*
 * kubectl as a child. It knows every way to be somebody for an API server (certificates, tokens,
 * exec plugins, proxies) and the user's contexts; what is asked of a cluster is asked by it.
 */
#ifndef PP_CLI_KUBECTL_KUBECTL_H
#define PP_CLI_KUBECTL_KUBECTL_H

#include "common/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

enum { PP_KUBECTL_ARGUMENTS = 32 };

/** What every call begins with: --context, --kubeconfig, ... as the user gave them. */
typedef struct pp_kubectl {
    const char *globals[16]; /**< borrowed */
    size_t n_globals;
    const char *namespace; /**< of --namespace; NULL: the context's */
} pp_kubectl;

typedef struct pp_kubectl_answer {
    char *out, *complaint; /**< what it wrote to standard output and error; never NULL on success */
    int status;            /**< its exit status; 128 and the signal's number */
} pp_kubectl_answer;

void pp_kubectl_answer_done(pp_kubectl_answer *answer);

/**
 * Runs kubectl with the arguments (NULL-terminated, PP_KUBECTL_ARGUMENTS at most), `input` on its
 * standard input where it is not NULL. Fails where it cannot be run; what it says to the question
 * is the answer's.
 */
int pp_kubectl_run(const pp_kubectl *kubectl, const char *const *arguments, const char *input,
                   pp_kubectl_answer *ret, pp_error *err);

/** Takes out of a complaint what kubectl's libraries log; it, or what to say where nothing is left.
 */
const char *pp_kubectl_tidy(char *complaint);

/** An answer's complaint, tidied; the answer's. */
const char *pp_kubectl_complaint(pp_kubectl_answer *answer);

/** The same as pp_kubectl_run, its output decoded; fails with kubectl's complaint where its status
 * is not 0: PP_ERR_NOT_FOUND, PP_ERR_DENIED or PP_ERR_UNAUTHORIZED where that is the API server's
 * answer, and will be again. A new reference in *ret. */
int pp_kubectl_json(const pp_kubectl *kubectl, const char *const *arguments, const char *input,
                    json_t **ret, pp_error *err);

/** Whether it does: fails with `what` and the first line of kubectl's complaint,
 * PP_ERR_UNAVAILABLE, where its status is not 0. */
int pp_kubectl_try(const pp_kubectl *kubectl, const char *const *arguments, const char *what,
                   pp_error *err);

/** Hands the terminal over: kubectl's own input, output and exit status, which is returned. */
int pp_kubectl_pass(const pp_kubectl *kubectl, const char *const *arguments, pp_error *err);

/** Starts one that goes on, with standard output into *ret_out, to be closed by the caller, and its
 * complaints into a file that stays the caller's (-1: to our standard error). */
int pp_kubectl_start(const pp_kubectl *kubectl, const char *const *arguments, int complaints,
                     pid_t *ret, int *ret_out, pp_error *err);

/** From now on a signal that ends this program (INT, TERM, HUP) ends the child first, and removes
 * the socket and the folder, whose names stay the caller's (NULL: none). One at a time. */
void pp_kubectl_guard(pid_t child, const char *socket, const char *folder);

/** Ends and waits for one that was started, guarded or not; 0 is allowed. */
void pp_kubectl_stop(pid_t child);

/** The namespace that is meant: --namespace, else the context's, else "default". A new string. */
int pp_kubectl_namespace(const pp_kubectl *kubectl, char **ret, pp_error *err);

#endif
