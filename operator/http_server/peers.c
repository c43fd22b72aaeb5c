/* What every peer has: its server, and a number of its own. */
#include "operator/http_server/http_server_internal.h"

pp_http_server *http_server_of(struct lws *wsi)
{
    return lws_context_user(lws_get_context(wsi));
}

pp_http_id http_next_id(pp_http_server *server)
{
    return ++server->last_id;
}
