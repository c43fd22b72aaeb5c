/* docs/openapi/events.yaml, as it is served; NUL-terminated. Made by embed.cmake. */
#ifndef PP_AGENT_OPENAPI_H
#define PP_AGENT_OPENAPI_H

extern const char pp_openapi[];

#endif
