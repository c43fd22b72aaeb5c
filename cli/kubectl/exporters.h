/* What exporters of GPUs' metrics tell: no I/O. */
#ifndef PP_CLI_KUBECTL_EXPORTERS_H
#define PP_CLI_KUBECTL_EXPORTERS_H

#include <jansson.h>
#include <stddef.h>

/** The names of the series in a text of metrics, each once; a new array, NULL where memory is out.
 */
json_t *pp_exporter_series(const char *text);

/** What these series lack of the fields that a session expects: "DCGM_FI_DEV_GPU_UTIL (GPUUtil),
 * ..."; "" where nothing. Cut where `out` ends. */
void pp_exporter_lacks(const json_t *series, char *out, size_t size);

#endif
