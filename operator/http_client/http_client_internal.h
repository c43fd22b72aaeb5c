/* Shared by the two files of the HTTP client; not for anybody else. */
#ifndef PP_OPERATOR_HTTP_CLIENT_INTERNAL_H
#define PP_OPERATOR_HTTP_CLIENT_INTERNAL_H

#include "common/buf.h"
#include "operator/http_client/http_client.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <uthash.h>
#include <utlist.h>

/** One exchange. Lives in the client's table until it is cancelled or its done callback is due. */
typedef struct http_client_exchange {
    pp_http_client *client;
    pp_http_client_id id;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *route; /**< where to connect to in place of the URL's host; NULL: there */
    pp_buf body;
    pp_http_client_chunk_fn chunk;
    pp_http_client_done_fn done;
    void *user;
    pp_http_client_share share;
    pp_error failed; /**< set by us or by the chunk callback before curl was told to stop */
    bool cancelled;  /**< no callback any more; freed once curl is not on the stack */
    bool added;      /**< known to the multi handle */
    char curl_error[CURL_ERROR_SIZE];
    struct http_client_exchange *prev, *next; /**< in the client's list of deferred work */
    UT_hash_handle hh;
} http_client_exchange;

struct pp_http_client {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    http_client_exchange *exchanges; /**< by id */
    http_client_exchange *deferred;  /**< started or cancelled while curl was on the stack */
    struct http_client_socket *sockets;
    char *user_agent;
    pp_http_client_id last_id;
    unsigned max_requests; /**< of each share; 0: its own */
    unsigned active[PP_HTTP_CLIENT_SHARES];
    unsigned depth; /**< callbacks of the loop that are on the stack */
    bool in_curl;   /**< curl is on the stack: its multi handle must not be touched */
    bool closing;   /**< freed by its owner */
    bool torn_down;
    unsigned handles; /**< libuv handles not closed yet */
    uint64_t connections;
};

/** Makes the exchange and its easy handle; nothing is started. NULL on error. */
http_client_exchange *http_client_exchange_new(pp_http_client *client,
                                               const pp_http_client_request *request,
                                               pp_error *err);
/** Frees it; it must not be known to the multi handle or the table any more. */
void http_client_exchange_free(http_client_exchange *exchange);
/** Calls the done callback with what curl says became of it. */
void http_client_exchange_report(http_client_exchange *exchange, CURLcode result);

#endif
