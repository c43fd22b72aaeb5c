#include "sidecar/agent/text.h"

#include "common/json.h"

void pp_text_clean(char *text)
{
    json_t *probe = json_string(text);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || (!probe && (unsigned char)*c >= 0x80))
            *c = '?';
    json_decref(probe);
}
