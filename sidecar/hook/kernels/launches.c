/*
 * Which records tell when a kernel was launched, and in which thread.
 *
 * A kernel's launch is told by its own record or by the one of the call that launched it. The first
 * keeps a GPU that is behind from running kernels back to back, and kernels of graphs lack it; the
 * second slows each call of the runtime, which a training that waits for its launches feels:
 * docs/overhead.md has figures. So a capture has what those before show to be better. Where it
 * takes the calls' and they cannot be had, nothing is recorded: a kernel in the wrong layer is
 * worse than none.
 *
 * Own records do not say which thread launched. That matters where other threads launch kernels
 * than those that mark, where several call modules at a time, or where a process uses several GPUs,
 * each of which autograd has a thread for. So the first steps of each capture have the calls'
 * records as well, and where such a thread or GPU is seen the capture ends, to go on with the
 * calls' records alone.
 *
 * Copies and fills, where somebody asks for them, have no launch in their own records. So in either
 * case their calls are recorded, beside nothing or beside those that launch; where that cannot be
 * they are not recorded at all.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* ns that a kernel costs, by its own record where the training waits for its launches (less
     * where the GPU is behind), and by its call's in both cases: measured on an H200. pace.c
     * compares. */
    OWN_COST = 2400,
    CALL_COST_BEHIND = 500,
    CALL_COST_WAITING = 6500,
    BEHIND = 100000,    /* ns from launch to begin of a kernel that had to wait for others */
    COPIES_UNTOLD = 16, /* one may have been launched before */
    LOOK_STEPS = 3,     /* of a capture in which threads that launch are looked for */
};

/* Chosen as CUPTI is attached, by what the captures before have shown. */
static atomic_bool by_calls;        /* launches are told by records of the calls */
static atomic_bool looking;         /* for threads that make no marks, beside own records ... */
static _Atomic int64_t looks_until; /* ... until so many steps were counted */
static atomic_bool copies;          /* are recorded, and fills */

/* What they have shown in this process' life ... */
static atomic_bool graphs_ever; /* the training has launched some */
static atomic_bool calls_fail;  /* they were asked for, and told nothing */
static atomic_bool copies_fail; /* they were recorded, and their calls were not told */
static _Atomic int64_t copies_told, copies_lost;
/* ... in this session ... */
static atomic_bool graphs;    /* the training launches some */
static atomic_uint devices;   /* that kernels of it ran on, as bits */
static atomic_bool strangers; /* threads launch some whose own records would be put elsewhere */
/* ... and in this capture. */
static _Atomic int64_t behind, ran; /* kernels that had to wait for others; all */

/* ---- the choice ---- */

bool pp_launches_have_calls(void)
{
    return pp_cupti.driver_api && !atomic_load(&calls_fail);
}

bool pp_kernels_by_calls(void)
{
    return atomic_load(&by_calls);
}

bool pp_kernels_several(void)
{
    return __builtin_popcount(atomic_load(&devices)) > 1;
}

/* What costs a marked step less, as far as both are known; else calls are tried where the GPU is
 * behind. */
static bool calls_are_better(void)
{
    bool mostly_behind = atomic_exchange(&behind, 0) > atomic_exchange(&ran, 0) / 2;
    int64_t own, calls;
    if (pp_pace_extra(false, &own) && pp_pace_extra(true, &calls))
        return calls < own;
    return mostly_behind;
}

/* What a session chose says nothing about the next one's layers. */
static void forget_session(void)
{
    static uint32_t session;
    if (session == pp_ring_session())
        return;
    session = pp_ring_session();
    pp_pace_forget();
    atomic_store(&graphs, false);
    atomic_store(&devices, 0);
    atomic_store(&strangers, false);
}

const char *pp_launches_refusal(void)
{
    forget_session();
    if (pp_launches_have_calls())
        return NULL;
    if (atomic_load(&graphs_ever))
        return pp_cupti.driver_api ? "CUPTI tells no launches of CUDA graphs"
                                   : "CUPTI before CUDA 12.4 tells no launches of CUDA graphs";
    return atomic_load(&strangers) ? "CUPTI tells no threads of launches" : NULL;
}

/* Own records have no thread: they do where all that is open is one thread's. */
void pp_launches_choose(bool several)
{
    bool better = calls_are_better();
    atomic_store(&by_calls,
                 pp_launches_have_calls() && (better || several || pp_kernels_several() ||
                                              atomic_load(&strangers) || atomic_load(&graphs)));
}

bool pp_launches_change(void)
{
    if (atomic_load(&by_calls))
        return atomic_load(&calls_fail);
    if (!pp_launches_have_calls())
        return atomic_load(&graphs_ever) || atomic_load(&strangers);
    return atomic_load(&graphs) || atomic_load(&strangers) || pp_kernels_several();
}

void pp_launches_refused(void)
{
    if (atomic_load(&by_calls))
        atomic_store(&calls_fail, true);
}

/* ---- what CUPTI records ---- */

/* Why copies and fills are not to be recorded; NULL: they are. On an H200 with CUPTI 13.0 a launch
 * and the thread by which CUPTI reads what has run then came to wait for each other for ever,
 * within 100,000 records: docs/timing.md. So somebody has to ask for them. */
static const char *refusal_of_copies(void)
{
    const char *asked = getenv("PRECISIONPROBE_COPIES");
    if (!asked || strcmp(asked, "1") != 0)
        return "CUPTI may hang on them; PRECISIONPROBE_COPIES=1 records them";
    if (!pp_cupti.driver_api)
        return "CUPTI before CUDA 12.4 tells no launches of copies";
    return atomic_load(&copies_fail) || atomic_load(&calls_fail)
               ? "CUPTI tells no launches of copies"
               : NULL;
}

bool pp_launches_enable(void)
{
    return atomic_load(&by_calls) ? pp_cupti_record_calls(true, !refusal_of_copies())
                                  : pp_cupti.latency(1) == PP_CUPTI_OK;
}

static int64_t steps_now(void)
{
    return pp_ring() ? __atomic_load_n(&pp_ring()->steps, __ATOMIC_RELAXED) : 0;
}

/* Beside kernels' own records, those of calls: of the ones that launch, for some steps, where
 * `look` says so, and of the ones that copy. Whether there are any. */
static bool enable_calls(bool look, bool copy)
{
    if (atomic_load(&by_calls))
        return true;
    look = look && pp_launches_have_calls();
    if (!look && !copy)
        return false;
    atomic_store(&looks_until, steps_now() + LOOK_STEPS);
    atomic_store(&looking, look);
    if (pp_cupti_record_calls(look, copy))
        return true;
    atomic_store(&looking, false);
    pp_cupti_disable_calls();
    return false;
}

static void disable_copies(void)
{
    (void)pp_cupti.disable(PP_CUPTI_MEMCPY);
    (void)pp_cupti.disable(PP_CUPTI_MEMSET);
    (void)pp_cupti.disable(PP_CUPTI_MEMCPY_PEERS);
}

const char *pp_launches_enable_more(bool look)
{
    const char *why = refusal_of_copies();
    const bool told = enable_calls(look, !why);
    atomic_store(&copies, false);
    if (why)
        return why;
    if (told && pp_cupti.enable(PP_CUPTI_MEMCPY) == PP_CUPTI_OK &&
        pp_cupti.enable(PP_CUPTI_MEMSET) == PP_CUPTI_OK &&
        pp_cupti.enable(PP_CUPTI_MEMCPY_PEERS) == PP_CUPTI_OK) {
        atomic_store(&copies, true);
        return NULL;
    }
    disable_copies();
    return "CUPTI refuses to record copies";
}

void pp_launches_disable(void)
{
    atomic_store(&looking, false);
    if (atomic_exchange(&copies, false))
        disable_copies();
    pp_cupti_disable_calls();
    if (!atomic_load(&by_calls))
        (void)pp_cupti.latency(0);
}

void pp_launches_end_look(void)
{
    if (!atomic_load(&looking) || steps_now() < atomic_load(&looks_until))
        return;
    atomic_store(&looking, false);
    pp_cupti_record_no_launches();
}

/* ---- what records show ---- */

int64_t pp_launches_saw_kernel(int64_t waited)
{
    const bool calls = atomic_load(&by_calls);
    const int call = waited > BEHIND ? CALL_COST_BEHIND : CALL_COST_WAITING;
    atomic_fetch_add(&ran, 1);
    atomic_fetch_add(&behind, waited > BEHIND);
    return (calls ? 0 : OWN_COST) + (calls || atomic_load(&looking) ? call : 0);
}

int64_t pp_launches_saw_copy(int64_t waited)
{
    atomic_fetch_add(&copies_told, 1);
    return waited > BEHIND ? CALL_COST_BEHIND : CALL_COST_WAITING;
}

void pp_launches_saw_device(uint32_t device)
{
    atomic_fetch_or(&devices, 1U << device);
}

void pp_launches_saw_graph(void)
{
    atomic_store(&graphs, true);
    atomic_store(&graphs_ever, true);
}

/* Beside own records: what was told so far may be in layers that it is not of. */
static void see_stranger(void)
{
    if (!atomic_exchange(&strangers, true) && !atomic_load(&by_calls))
        pp_ring_lose_kernels(1);
}

void pp_launches_saw_call(int kind, uint32_t id, uint32_t thread)
{
    if (!atomic_load(&by_calls) && pp_cupti_call_launches(kind, id) && pp_thread_is_strange(thread))
        see_stranger();
}

void pp_kernels_other_thread(void)
{
    see_stranger();
}

void pp_launches_lost_kernel(void)
{
    if (atomic_load(&ran) == 0)
        atomic_store(&calls_fail, true);
}

void pp_launches_lost_copy(void)
{
    if (atomic_fetch_add(&copies_lost, 1) >= COPIES_UNTOLD && atomic_load(&copies_told) == 0)
        atomic_store(&copies_fail, true);
}
