/* docs/openapi/api.yaml, as it is served; NUL-terminated. Made by embed.cmake. */
#ifndef PP_OPERATOR_API_OPENAPI_H
#define PP_OPERATOR_API_OPENAPI_H

extern const char pp_api_openapi[];

#endif
