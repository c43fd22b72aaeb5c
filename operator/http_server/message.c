#include "operator/http_server/message.h"

#include "common/cleanup.h"
#include "common/json.h"

#include <stdlib.h>

agent_message *agent_message_new(pp_buf *text)
{
    agent_message *m = calloc(1, sizeof *m);
    if (!m) {
        pp_buf_done(text);
        return NULL;
    }
    m->text = *text;
    m->bytes = text->len;
    m->seq = -1;
    return m;
}

void agent_message_free(agent_message *m)
{
    if (!m)
        return;
    pp_buf_done(&m->text);
    pp_wire_batch_free(m->batch);
    free(m);
}

/** The sequence number of a batch that may be wrong otherwise; -1 when it has none. */
static int64_t seq_of(const json_t *object)
{
    const json_t *seq = json_object_get(object, "seq");
    json_int_t value = json_integer_value(seq);
    return json_is_integer(seq) && value >= 0 && value <= PP_WIRE_MAX_COUNT ? value : -1;
}

static json_t *parse(const char *text, size_t len, pp_error *err)
{
    if (pp_wire_count_containers(text, len) <= PP_WIRE_MAX_CONTAINERS)
        return pp_json_parse(text, len, err);
    (void)pp_error_set(err, PP_ERR_TOO_LARGE, "has more than %d lists and objects",
                       PP_WIRE_MAX_CONTAINERS);
    return NULL;
}

static message_kind decode_batch(agent_message *m, const json_t *object)
{
    if (pp_wire_batch_decode(object, &m->batch, &m->error) == 0)
        return MESSAGE_BATCH;
    m->seq = seq_of(object);
    return MESSAGE_REFUSED;
}

static message_kind decode_time(agent_message *m, const json_t *object)
{
    int rc = pp_wire_time_decode(object, &m->time, &m->error);
    if (rc == 0 && !m->time.realtime)
        rc = pp_error_field(&m->error, "realtime", "is required");
    return rc == 0 ? MESSAGE_TIME : MESSAGE_MALFORMED;
}

static message_kind decode(agent_message *m)
{
    pp_wire_type type = PP_WIRE_BATCH;
    PP_CLEANUP_JSON json_t *object =
        parse(m->text.data ? m->text.data : "", m->text.len, &m->error);
    if (!object || pp_wire_type_of(object, &type, &m->error) < 0)
        return MESSAGE_MALFORMED;
    switch (type) {
    case PP_WIRE_BATCH:
        return decode_batch(m, object);
    case PP_WIRE_BYE:
        return pp_wire_bye_decode(object, &m->bye, &m->error) < 0 ? MESSAGE_MALFORMED : MESSAGE_BYE;
    case PP_WIRE_TIME:
        return decode_time(m, object);
    case PP_WIRE_HOOK:
        return pp_wire_hook_decode(object, &m->hook, &m->error) < 0 ? MESSAGE_MALFORMED
                                                                    : MESSAGE_HOOK;
    default:
        (void)pp_error_field(&m->error, "type", "is not for an agent to send");
        return MESSAGE_MALFORMED;
    }
}

void agent_message_decode(agent_message *m)
{
    if (m->decoded)
        return;
    m->kind = decode(m);
    m->decoded = true;
    pp_buf_done(&m->text);
}
