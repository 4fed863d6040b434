/* Memory that is left: the system's, or a cgroup's limit, as made-up trees of /proc and /sys tell it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"

enum { MOST = 64, KB = 1024, MB = 1 << 20 };

static char root[128], made[MOST][512];
static int n_made;

static void remember(const char *path)
{
    assert_true(n_made < MOST);
    snprintf(made[n_made++], sizeof made[0], "%s", path);
}

/* A file below root, with its folders. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (mkdir(path, 0700) == 0)
            remember(path);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    remember(path);
}

static int begin(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/sennit-memory-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    while (n_made > 0)
        remove(made[--n_made]);
    return rmdir(root);
}

static void system_alone(void **state)
{
    (void)state;
    assert_int_equal(sn_memory_available_below(root), 0);
    put("/proc/meminfo", "MemTotal:       999 kB\nMemFree:    5 kB\nMemAvailable:      8192 kB\nCached: 7 kB\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
    put("/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
}

/* A container: its own cgroup is the top. Files' pages that can be dropped are no use of memory. */
static void container(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   8192 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "4194304\n");
    assert_int_equal(sn_memory_available_below(root), 4 * MB);
    put("/sys/fs/cgroup/memory.current", "4194304\n");
    assert_int_equal(sn_memory_available_below(root), 0);
    put("/sys/fs/cgroup/memory.stat", "anon 5\nfile 4000000\ninactive_anon 9\ninactive_file 2097152\n"
                                      "active_file 1048576\n");
    assert_int_equal(sn_memory_available_below(root), 3 * MB);
    put("/sys/fs/cgroup/memory.max", "104857600\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
}

/* A service: its limit lies where /proc/self/cgroup says, or above that. */
static void service(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   8192 kB\n");
    put("/proc/self/cgroup", "1:name=systemd:/other\n0::/system.slice/sennit.service\n");
    put("/sys/fs/cgroup/system.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/sennit.service/memory.max", "2097152\n");
    put("/sys/fs/cgroup/system.slice/sennit.service/memory.current", "1048576\n");
    assert_int_equal(sn_memory_available_below(root), 1 * MB);
    put("/sys/fs/cgroup/system.slice/memory.max", "524288\n");
    assert_int_equal(sn_memory_available_below(root), 512 * KB);
    put("/sys/fs/cgroup/memory.max", "262144\n");
    assert_int_equal(sn_memory_available_below(root), 256 * KB);
    put("/sys/fs/cgroup/other/memory.max", "1\n");
    assert_int_equal(sn_memory_available_below(root), 256 * KB);
}

static void version_1(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   8192 kB\n");
    put("/proc/self/cgroup", "9:name=systemd:/\n8:pids:/\n4:hugetlb,memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n"); /* in a container the path is not there */
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2097152\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    assert_int_equal(sn_memory_available_below(root), 2 * MB);
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1048576\n");
    assert_int_equal(sn_memory_available_below(root), 1 * MB);
    put("/proc/self/cgroup", "4:notmemory:/docker/abc\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
}

static void odd(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   8192 kB\n");
    put("/proc/self/cgroup", "nonsense\n0::/../../elsewhere\n\n4:memory\n");
    assert_int_equal(sn_memory_available_below(root), 8 * MB);
    put("/sys/fs/cgroup/memory.max", "1048576\n");
    assert_int_equal(sn_memory_available_below(root), 1 * MB);
    assert_true(sn_memory_available() > 0); /* of this machine */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(system_alone, begin, end),
        cmocka_unit_test_setup_teardown(container, begin, end),
        cmocka_unit_test_setup_teardown(service, begin, end),
        cmocka_unit_test_setup_teardown(version_1, begin, end),
        cmocka_unit_test_setup_teardown(odd, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
