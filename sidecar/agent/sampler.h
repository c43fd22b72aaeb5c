/*
 * The agent's side of a sampler's file (sidecar/samples.h): it reads what the sampler beside the
 * training has written, checks it, and tells the sampler what is wanted. No loop, no clock.
 */
#ifndef PP_AGENT_SAMPLER_H
#define PP_AGENT_SAMPLER_H

#include "common/error.h"
#include "sidecar/samples.h"

#include <stdbool.h>

typedef struct pp_sampler pp_sampler;

/** Where the file of a process's sampler is, by its ring's path, and by the GPU's number in CUDA
 * where several are sampled, else -1; false where that is none. */
bool pp_sampler_path(const char *ring, int device, char *out, size_t size);

/** PP_ERR_NOT_FOUND where there is no such file (yet); PP_ERR_INVALID where it is another one. */
int pp_sampler_open(const char *path, pp_sampler **ret, pp_error *err);
/** Tells it to leave, or to rest: an agent after this one may go on with it for as long as it waits
 * for a beat. NULL is allowed. */
void pp_sampler_free(pp_sampler *sampler, bool leave);

/** Reads the header. */
int pp_sampler_refresh(pp_sampler *sampler, pp_error *err);
/** As it was read last; its texts end. */
const pp_samples_header *pp_sampler_header(const pp_sampler *sampler);

/** Copies up to `max` samples that were not taken yet, as of the last refresh, and gives their room
 * back. Returns how many, -1 on an error. */
long pp_sampler_take(pp_sampler *sampler, pp_samples_one *samples, size_t max, pp_error *err);

int pp_sampler_set_want(pp_sampler *sampler, pp_samples_want want, pp_error *err);
/** A sign that the agent is there; once a second. */
int pp_sampler_beat(pp_sampler *sampler, pp_error *err);
/** Whether its process has ended. */
bool pp_sampler_gone(const pp_sampler *sampler);

#endif
