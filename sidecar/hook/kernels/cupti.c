/*
 * The CUPTI that torch has in the process already: its functions, and the calls of the runtime and
 * the driver that it is to record. CUDA 12 and later keep the numbers.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

enum { VERSION_MIN = 18 }; /* CUPTI of CUDA 12.0 */

pp_cupti_functions pp_cupti;

static const struct {
    const char *name;
    void **slot;
} symbols[] = {
    {"cuptiGetVersion", (void **)&pp_cupti.version},
    {"cuptiGetTimestamp", (void **)&pp_cupti.timestamp},
    {"cuptiActivityRegisterCallbacks", (void **)&pp_cupti.callbacks},
    {"cuptiActivityEnable", (void **)&pp_cupti.enable},
    {"cuptiActivityDisable", (void **)&pp_cupti.disable},
    {"cuptiActivityEnableLatencyTimestamps", (void **)&pp_cupti.latency},
    {"cuptiActivityGetNextRecord", (void **)&pp_cupti.next},
    {"cuptiActivityFlushAll", (void **)&pp_cupti.flush},
    {"cuptiActivityGetNumDroppedRecords", (void **)&pp_cupti.dropped},
    {"cuptiSubscribe", (void **)&pp_cupti.subscribe},
    {"cuptiUnsubscribe", (void **)&pp_cupti.unsubscribe},
    {"cuptiEnableDomain", (void **)&pp_cupti.domain},
    {"cuptiFinalize", (void **)&pp_cupti.finalize},
};

/* Both functions or neither. */
static void load_call_records(void *library)
{
    void *driver = dlsym(library, "cuptiActivityEnableDriverApi");
    void *runtime = dlsym(library, "cuptiActivityEnableRuntimeApi");
    if (!driver || !runtime)
        return;
    memcpy(&pp_cupti.driver_api, &driver, sizeof driver);
    memcpy(&pp_cupti.runtime_api, &runtime, sizeof runtime);
}

static uint32_t version;

uint32_t pp_cupti_version(void)
{
    return version;
}

const char *pp_cupti_load(void)
{
    static bool loaded;
    static char path[PATH_MAX];
    if (loaded)
        return NULL;
    if (!pp_find_library("libcupti.so", path))
        return "no CUPTI is loaded";
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return "no CUPTI is loaded";
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return "CUPTI lacks a function";
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    load_call_records(library);
    if (pp_cupti.version(&version) != PP_CUPTI_OK || version < VERSION_MIN)
        return "CUPTI is older than that of CUDA 12";
    loaded = true;
    return NULL;
}

/* Numbers of calls, from the first to the last. */
typedef struct call_range {
    uint32_t first, last;
} call_range;

/* The calls that launch, of which alone CUPTI makes records: a runtime's call has one for both.
 * Each is there for the legacy stream and for one of each thread. */
static const call_range driver_calls[] = {
    {307, 307},
    {442, 442}, /* cuLaunchKernel */
    {652, 653}, /* cuLaunchKernelEx */
    {477, 478}, /* cuLaunchCooperativeKernel */
};
static const call_range runtime_calls[] = {
    {211, 211}, {214, 214}, /* cudaLaunchKernel */
    {505, 506},             /* __cudaLaunchKernel: of CUDA 13 */
    {430, 431},             /* cudaLaunchKernelExC */
    {269, 270},             /* cudaLaunchCooperativeKernel */
};
/* And those that copy or fill: cu.../cuda...Memcpy... and Memset... */
static const call_range driver_copies[] = {
    {43, 95},   {216, 227}, {232, 234}, {248, 254}, {276, 293}, {305, 306},
    {318, 321}, {397, 416}, {418, 433}, {776, 779}, {796, 799}, {837, 840},
};
static const call_range runtime_copies[] = {
    {31, 52},   {142, 145}, {160, 163}, {215, 236}, {243, 246},
    {249, 250}, {482, 485}, {509, 512}, {554, 557},
};
/* A replay launches kernels, and copies. */
static const call_range driver_replays[] = {{514, 515}};  /* cuGraphLaunch */
static const call_range runtime_replays[] = {{311, 312}}; /* cudaGraphLaunch */

#define COUNT(some) (sizeof(some) / sizeof *(some))

static bool is_among(const call_range *some, size_t n, uint32_t id)
{
    bool is = false;
    for (size_t i = 0; i < n; i++)
        is = is || (id >= some[i].first && id <= some[i].last);
    return is;
}

bool pp_cupti_call_launches(int kind, uint32_t id)
{
    return kind == PP_CUPTI_DRIVER ? is_among(driver_calls, COUNT(driver_calls), id)
                                   : is_among(runtime_calls, COUNT(runtime_calls), id);
}

/* One of them that this CUPTI does not know is never made. */
static void record_them(int (*set)(uint32_t, uint8_t), const call_range *some, size_t n, uint8_t on)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t id = some[i].first; id <= some[i].last; id++)
            (void)set(id, on);
}

static void record_none(int (*set)(uint32_t, uint8_t))
{
    enum { CALLS_MAX = 1200 }; /* more than either has; 0.25 ms for all */
    for (uint32_t id = 1; id < CALLS_MAX; id++)
        (void)set(id, 0);
}

/* CUPTI heeds what it is told of single calls only while their kind is enabled, which enables them
 * all (measured with CUDA 13.0). */
bool pp_cupti_record_calls(bool launch, bool copy)
{
    if (pp_cupti.enable(PP_CUPTI_RUNTIME) != PP_CUPTI_OK ||
        pp_cupti.enable(PP_CUPTI_DRIVER) != PP_CUPTI_OK)
        return false;
    record_none(pp_cupti.runtime_api);
    record_them(pp_cupti.runtime_api, runtime_replays, COUNT(runtime_replays), 1);
    if (launch)
        record_them(pp_cupti.runtime_api, runtime_calls, COUNT(runtime_calls), 1);
    if (copy)
        record_them(pp_cupti.runtime_api, runtime_copies, COUNT(runtime_copies), 1);
    record_none(pp_cupti.driver_api);
    record_them(pp_cupti.driver_api, driver_replays, COUNT(driver_replays), 1);
    if (launch)
        record_them(pp_cupti.driver_api, driver_calls, COUNT(driver_calls), 1);
    if (copy)
        record_them(pp_cupti.driver_api, driver_copies, COUNT(driver_copies), 1);
    return true;
}

void pp_cupti_record_no_launches(void)
{
    record_them(pp_cupti.runtime_api, runtime_calls, COUNT(runtime_calls), 0);
    record_them(pp_cupti.driver_api, driver_calls, COUNT(driver_calls), 0);
}

void pp_cupti_disable_calls(void)
{
    (void)pp_cupti.disable(PP_CUPTI_RUNTIME);
    (void)pp_cupti.disable(PP_CUPTI_DRIVER);
}
