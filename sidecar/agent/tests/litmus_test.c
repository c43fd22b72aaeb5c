/*
 * The agent reads what another process writes, on a machine that reads in any order it likes: a
 * read is given what its place held as early as the last fence, and only the header's numbers are
 * always the latest, since there a reader waits for news. So what lies behind such a number is the
 * old where no fence comes between. x86 keeps reads in order: there no test of two threads can
 * tell.
 */
#include "sidecar/agent/fence.h"
#include "sidecar/agent/reader.h"
#include "sidecar/agent/sampler.h"
#include "sidecar/hook/hook.h"
#include "sidecar/samples.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    const char *memory; /* the file, mapped; NULL: reads are in order */
    size_t size, header;
    char *old;  /* as it was at the last fence */
    int served; /* reads that were given it */
} machine;

static char folder[64];

/* In place of the agent's own. */
void pp_read_fence(void)
{
    if (machine.memory)
        memcpy(machine.old, machine.memory, machine.size);
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    if (!machine.memory || (size_t)at < machine.header)
        return syscall(SYS_pread64, fd, out, n, at);
    machine.served++;
    memcpy(out, machine.old + at, n);
    return (ssize_t)n;
}

static void run_in_any_order(const void *memory, size_t size, size_t header)
{
    machine.old = malloc(size);
    assert_non_null(machine.old);
    machine.memory = memory;
    machine.size = size;
    machine.header = header;
    pp_read_fence();
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/pp-litmus-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    assert_true(machine.served > 0); /* else the agent reads in a way that this machine is not */
    machine.served = 0;
    machine.memory = NULL;
    free(machine.old);
    machine.old = NULL;
    return rmdir(folder);
}

static pp_reader *open_ring(char *path, size_t size)
{
    pp_reader *r = NULL;
    pp_error err = {0};
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    (void)snprintf(path, size, "%s/%s" PP_RING_SUFFIX, folder, pp_ring_id());
    assert_int_equal(pp_reader_open(path, &r, &err), 0);
    run_in_any_order(pp_ring(), PP_RING_SIZE, sizeof(pp_ring_header));
    return r;
}

static void write_all(void)
{
    assert_int_equal(pp_ring_add_layer("layer", "Linear", 5), 1);
    assert_int_equal(pp_ring_add_site("train.py", 7), 1);
    assert_true(pp_ring_add_name("kernel", 6));
    pp_ring_push_kernel(&(pp_kernel){.start = 11});
    pp_ring_push(&(pp_mark){.kind = PP_MARK_BEGIN, .value = 13});
}

static void test_what_numbers_of_a_ring_cover_is_there(void **state)
{
    (void)state;
    char path[128], name[16] = "";
    pp_error err = {0};
    pp_mark mark;
    pp_kernel kernel;
    pp_ring_layer layer;
    pp_ring_site site;
    pp_reader *r = open_ring(path, sizeof path);
    write_all();
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    assert_int_equal(pp_reader_take(r, &mark, 1, &err), 1);
    assert_int_equal(mark.value, 13);
    assert_int_equal(pp_reader_take_kernels(r, &kernel, 1, &err), 1);
    assert_int_equal(kernel.start, 11);
    assert_int_equal(pp_reader_layer(r, 1, &layer, &err), 0);
    assert_string_equal(layer.name, "layer");
    assert_int_equal(pp_reader_site(r, 1, &site, &err), 0);
    assert_int_equal(site.line, 7);
    assert_int_equal(pp_reader_names(r, 0, name, sizeof name, &err), 7);
    assert_string_equal(name, "kernel");
    pp_reader_free(r);
    pp_ring_close(true);
    assert_int_equal(unlink(path), 0);
}

/* As the sampler has it. */
static pp_samples_header *make_samples(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)PP_SAMPLES_SIZE) == 0);
    pp_samples_header *h = mmap(NULL, PP_SAMPLES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(h != MAP_FAILED);
    close(fd);
    h->magic = PP_SAMPLES_MAGIC;
    h->version = PP_SAMPLES_VERSION;
    h->header_size = sizeof *h;
    h->sample_size = sizeof(pp_samples_one);
    h->sample_count = PP_SAMPLES_COUNT;
    return h;
}

static void test_what_a_samplers_head_covers_is_there(void **state)
{
    (void)state;
    char path[128];
    pp_error err = {0};
    pp_sampler *s = NULL;
    pp_samples_one sample;
    (void)snprintf(path, sizeof path, "%s/one" PP_SAMPLES_SUFFIX, folder);
    pp_samples_header *h = make_samples(path);
    assert_int_equal(pp_sampler_open(path, &s, &err), 0);
    run_in_any_order(h, PP_SAMPLES_SIZE, sizeof *h);
    ((pp_samples_one *)(void *)(h + 1))->end = 17;
    __atomic_store_n(&h->head, 1, __ATOMIC_RELEASE);
    assert_int_equal(pp_sampler_refresh(s, &err), 0);
    assert_int_equal(pp_sampler_take(s, &sample, 1, &err), 1);
    assert_int_equal(sample.end, 17);
    pp_sampler_free(s, false);
    machine.memory = NULL;
    assert_int_equal(munmap(h, PP_SAMPLES_SIZE), 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_numbers_of_a_ring_cover_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_samplers_head_covers_is_there, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
