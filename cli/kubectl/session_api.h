/*
 * The operator's HTTP API (docs/api.md), through the API server's service proxy: by a `kubectl
 * proxy` of our own, on a socket that only this user can open, which lets nothing through but
 * questions to that Service.
 */
#ifndef PP_CLI_KUBECTL_SESSION_API_H
#define PP_CLI_KUBECTL_SESSION_API_H

#include "cli/kubectl/kubectl.h"

/** Where the operator is, and who asks it. */
typedef struct pp_session_api_where {
    const char *system;  /**< the operator's namespace */
    const char *service; /**< its Service */
    const char *account; /**< whose token is asked for where `token` is NULL, in `namespace` */
    const char *token;   /**< for the API server; NULL: the account's is asked for */
    const char *namespace;
} pp_session_api_where;

typedef struct pp_session_api pp_session_api;

/** Starts the proxy and asks for the token. Fails with PP_ERR_UNAUTHORIZED where there is no token
 * to be had though the API server answers. `kubectl` and `where` are borrowed as long as it is
 * open: a token of the account is followed by another before it ends. */
int pp_session_api_open(const pp_kubectl *kubectl, const pp_session_api_where *where,
                        pp_session_api **ret, pp_error *err);

/** What somebody has to do where there is no token to be had: lines of ours. A new string. */
char *pp_session_api_advice(const pp_session_api_where *where);

/** NULL is allowed. */
void pp_session_api_close(pp_session_api *api);

/** The answer to a path below /api/v1; a new reference. Fails with what the operator says, or for
 * want of another token as above. */
int pp_session_api_get(pp_session_api *api, const char *path, json_t **ret, pp_error *err);

/** All pages of rows together, as {"items": [...]} beside what the first page has. `limit` rows at
 * most (0: all). */
int pp_session_api_rows(pp_session_api *api, const char *path, size_t limit, json_t **ret,
                        pp_error *err);

/** Where a browser finds the page behind a `kubectl proxy` on loopback: the path of the service
 * proxy. A new string. */
char *pp_session_api_base(const pp_session_api_where *where);

#endif
