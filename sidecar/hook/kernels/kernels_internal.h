/*
 * What kernels.c is made of, from what knows all to what knows least: it attaches CUPTI and leaves
 * it; cupti_buffers.c has the buffers that CUPTI fills, kernel_records.c makes kernels of the
 * records in them, launches.c decides which records tell when and by whom each was launched, and
 * cupti.c is CUPTI. For these and copies.c alone.
 */
#ifndef PP_SIDECAR_HOOK_KERNELS_KERNELS_INTERNAL_H
#define PP_SIDECAR_HOOK_KERNELS_KERNELS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- cupti.c: CUPTI's functions, and the calls that it records ---- */

enum { PP_CUPTI_OK = 0 };

/** Kinds of records. */
enum {
    PP_CUPTI_MEMCPY = 1,
    PP_CUPTI_MEMSET = 2,
    PP_CUPTI_DRIVER = 4, /**< calls of the driver */
    PP_CUPTI_RUNTIME = 5,
    PP_CUPTI_KERNEL = 10,
    PP_CUPTI_MEMCPY_PEERS = 22,
};

typedef void (*pp_cupti_callback)(void *, int domain, uint32_t id, const void *data);

/** All return PP_CUPTI_OK or why not; none is there before pp_cupti_load() has returned NULL. */
typedef struct pp_cupti_functions {
    int (*version)(uint32_t *);
    int (*timestamp)(uint64_t *);
    int (*callbacks)(void (*)(uint8_t **, size_t *, size_t *),
                     void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*enable)(int);
    int (*disable)(int);
    int (*latency)(uint8_t);
    int (*next)(uint8_t *, size_t, void **);
    int (*flush)(uint32_t);
    int (*dropped)(void *, uint32_t, size_t *);
    int (*subscribe)(void **, pp_cupti_callback, void *);
    int (*unsubscribe)(void *);
    int (*domain)(uint32_t, void *, int);
    int (*finalize)(void);
    /* NULL before CUDA 12.4. */
    int (*driver_api)(uint32_t, uint8_t);
    int (*runtime_api)(uint32_t, uint8_t);
} pp_cupti_functions;

extern pp_cupti_functions pp_cupti;

/** Finds them in the process. NULL, or why they cannot be used (static). */
const char *pp_cupti_load(void);
uint32_t pp_cupti_version(void);

/** Whether a call of PP_CUPTI_DRIVER or PP_CUPTI_RUNTIME, by its number, launches kernels. */
bool pp_cupti_call_launches(int kind, uint32_t id);
/** Has CUPTI record the calls that launch or copy, as it is to, and no others. Needs `driver_api`.
 */
bool pp_cupti_record_calls(bool launch, bool copy);
/** Those that launch no more. */
void pp_cupti_record_no_launches(void);
/** None at all. */
void pp_cupti_disable_calls(void);

/* ---- launches.c: which records tell launches ---- */

/** Why nothing is to be recorded in this session, by what those captures have shown that were;
 * NULL: it may be (static). As CUPTI is to be attached. */
const char *pp_launches_refusal(void);
/** Then chooses how; `several` as in pp_kernels_start(). */
void pp_launches_choose(bool several);
/** Has CUPTI record what was chosen; false: it refuses. */
bool pp_launches_enable(void);
/** Beside kernels: for some steps the calls that launch, where `look` says so, and copies and
 * fills. NULL, or why these are not recorded (static). */
const char *pp_launches_enable_more(bool look);
/** Undoes both. */
void pp_launches_disable(void);
/** CUPTI has refused: what was chosen is not chosen again. */
void pp_launches_refused(void);
/** Ends the look for threads once enough was seen. The hook's thread, while CUPTI is attached. */
void pp_launches_end_look(void);
/** Whether CUPTI can tell launches by the calls, and so also the threads of them. */
bool pp_launches_have_calls(void);
/** Whether the next capture's are to be told otherwise than this one's, or not at all. */
bool pp_launches_change(void);

/** What records show, as they come. Of a kernel and a copy: ns from its launch to its begin; what
 * its records cost is returned. */
int64_t pp_launches_saw_kernel(int64_t waited);
int64_t pp_launches_saw_copy(int64_t waited);
void pp_launches_saw_device(uint32_t device);
/** A kernel of a graph, beside own records: it is lost. */
void pp_launches_saw_graph(void);
/** A call, by its kind, number and thread. */
void pp_launches_saw_call(int kind, uint32_t id, uint32_t thread);
/** A kernel, or a copy, whose call was not told. */
void pp_launches_lost_kernel(void);
void pp_launches_lost_copy(void);

/* ---- kernel_records.c: records into the ring ---- */

/** CUPTI was attached: what is left of what it told before is forgotten. `offset`: from its clock
 * to the marks'. */
void pp_records_begin(int64_t offset);
/** Takes the records of a buffer of CUPTI's. One thread at a time. */
void pp_records_take(void *context, uint32_t stream, uint8_t *buffer, size_t valid);
/** CUPTI is about to hand over what is done; `lost`: by now some had no buffer. */
void pp_records_flush(bool lost);

/** Whether no kernel of a capture that has ended by then will come any more, as far as launches
 * since show, or silence. */
bool pp_records_await(int64_t end);
/** What comes next without an end still runs, and is given up: a loss where it may be of the
 * capture that ended by then (INT64_MAX: it goes on), until pp_records_complete(). */
void pp_records_give_up(int64_t end);
/** All that was launched until now is written, or never will be. `end`: of the capture. */
void pp_records_complete(int64_t end);
/** Kernels and copies since pp_records_begin(). */
int64_t pp_records_count(void);
/** In a forked child. */
void pp_records_forget(void);

/* ---- cupti_buffers.c: the buffers that CUPTI fills ---- */

/** Has CUPTI fill them. False: it refuses. */
bool pp_cupti_buffers_register(void);
/** As a capture starts. False: out of memory. */
bool pp_cupti_buffers_take_back(void);
/** CUPTI is about to be left: those that it has are nobody's, and none is read any more. False: one
 * is being read this moment. Waits for nobody. */
bool pp_cupti_buffers_abandon(void);
/** It could not be left. */
void pp_cupti_buffers_keep(void);
/** Whether CUPTI has half of a capture's or more; whether it wanted one when there was none. */
bool pp_cupti_buffers_few(void);
bool pp_cupti_buffers_ran_out(void);
/** In a forked child. */
void pp_cupti_buffers_forget(void);

#endif
