/* Files on disk: mapping, errors of the system, dropping pages, content id, and every allocation
 * failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "format/gguf.h"
#include "support/gguf_walk.h"
#include "support/tiny_model.h"

static char dir[512];

static int make_dir(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/sennit-gguf-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static const char *path_of(const char *name)
{
    static char path[sizeof dir + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static sennit_status open_path(const char *path, struct sennit_error *err)
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    sn_heap_init(&heap, NULL);
    sennit_status status = sn_gguf_open(&g, &heap, path, err);
    sn_gguf_close(g);
    assert_int_equal(atomic_load(&heap.total), 0);
    return status;
}

/* Expects a refusal whose message begins with the path and has the word. */
static void refused(const char *path, sennit_status status, const char *word)
{
    struct sennit_error e = {.message = ""};
    assert_int_equal(open_path(path, &e), status);
    if (strncmp(e.message, path, strlen(path)) != 0 || !strstr(e.message, word))
        fail_msg("'%s' lacks '%s' or the path", e.message, word);
}

static void system_errors(void **state)
{
    (void)state;
    refused(path_of("missing.gguf"), SENNIT_NOT_FOUND, "cannot open");
    refused("", SENNIT_NOT_FOUND, "cannot open");
    refused(dir, SENNIT_IO, "regular file");
    const char *path = path_of("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(path, SENNIT_IO, "regular file");
    unlink(path);
    path = path_of("empty.gguf");
    gguf_bytes_save(&(struct gguf_bytes){0}, path);
    refused(path, SENNIT_FORMAT, "incomplete download");
    gguf_bytes_save(&(struct gguf_bytes){.data = (uint8_t[]){'h', 'e', 'l', 'l', 'o'}, .len = 5},
                    path);
    refused(path, SENNIT_FORMAT, "not a GGUF file");
    unlink(path);
}

/* Resident bytes of this process's mappings of the file, by the system's own books (a sanitizer's
 * shadow memory does not count); *known is false where the system keeps none. */
static size_t resident_bytes(const char *path, bool *known)
{
    char line[512];
    size_t total = 0, kb = 0;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    *known = f != NULL;
    while (f && fgets(line, sizeof line, f)) {
        if (line[0] < 'A' ||
            line[0] > 'Z') /* a mapping begins with its address, what follows with names */
            ours = strstr(line, path) != NULL;
        else if (ours && sscanf(line, "Rss: %zu kB", &kb) == 1)
            total += kb << 10;
    }
    if (f)
        fclose(f);
    return total;
}

static void one_big_tensor(const char *path, size_t n_bytes)
{
    struct gguf_writer w;
    struct gguf_bytes file;
    uint8_t *data = test_malloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        data[i] = (uint8_t)(i % 251);
    gw_init(&w, 3);
    gw_tensor(&w, "big", SENNIT_I8, 1, (uint64_t[]){n_bytes}, data, n_bytes);
    gw_finish(&w, &file);
    gguf_bytes_save(&file, path);
    gguf_bytes_free(&file);
    test_free(data);
}

static void pages_are_dropped(void **state)
{
    (void)state;
    enum { BIG = 64 << 20 };
    const char *path = path_of("big.gguf");
    struct sn_heap heap;
    struct sn_gguf *g;
    uint64_t sum = 0;
    one_big_tensor(path, BIG);
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_gguf_open(&g, &heap, path, NULL), SENNIT_OK);
    const struct sn_gguf_tensor *t = sn_gguf_tensor(g, "big");
    const uint8_t *p = t->data;
    bool known;
    sn_gguf_file_hash(g); /* reads all, keeps nothing */
    size_t hashed = resident_bytes(path, &known);
    for (size_t i = 0; i < BIG; i += 512)
        sum += p[i];
    size_t touched = resident_bytes(path, &known);
    sn_gguf_drop_pages(g, p, BIG);
    size_t dropped = resident_bytes(path, &known);
    print_message("resident KB of the mapping: %zu hashed, %zu touched, %zu dropped\n",
                  hashed >> 10, touched >> 10, dropped >> 10);
    if (known) {
        assert_true(hashed <= 64 << 10);
        assert_true(touched >= BIG);
        assert_true(dropped <= 64 << 10);
    }
    uint64_t again = 0;
    for (size_t i = 0; i < BIG; i += 512)
        again += p[i];
    assert_int_equal(sum, again);
    sn_gguf_drop_pages(g, p - 4096, BIG + 8192); /* not within the mapping: nothing happens */
    sn_gguf_drop_pages(g, &sum, sizeof sum);
    assert_int_equal(p[5], 5);
    sn_gguf_close(g);
    unlink(path);
}

static void content_id(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_gguf *g;
    struct gguf_bytes file;
    struct tiny_spec spec = tiny_spec_default();
    const char *path = path_of("tiny.gguf");
    sn_heap_init(&heap, NULL);
    tiny_model_build(&spec, &file);
    gguf_bytes_save(&file, path);
    uint64_t expected = XXH3_64bits(file.data, file.len);
    assert_int_equal(sn_gguf_open(&g, &heap, path, NULL), SENNIT_OK);
    assert_true(sn_gguf_file_hash(g) == expected);
    assert_int_equal(sn_gguf_file_bytes(g), file.len);
    uint64_t walked = gguf_walk(g);
    sn_gguf_close(g);
    assert_int_equal(sn_gguf_open_memory(&g, &heap, file.data, file.len, NULL), SENNIT_OK);
    assert_true(sn_gguf_file_hash(g) == expected);
    assert_true(gguf_walk(g) == walked);
    sn_gguf_close(g);
    file.data[file.len - 1] ^= 1;
    assert_int_equal(sn_gguf_open_memory(&g, &heap, file.data, file.len, NULL), SENNIT_OK);
    assert_true(sn_gguf_file_hash(g) != expected);
    sn_gguf_close(g);
    gguf_bytes_free(&file);
    unlink(path);
}

/* How often the path stands in a list that the system keeps of this process. */
static size_t count_in_maps(const char *path)
{
    char line[512];
    size_t n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, path) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* Neither a descriptor nor a mapping outlives success or failure. */
static void nothing_stays_open(void **state)
{
    (void)state;
    struct tiny_spec spec = tiny_spec_default();
    const char *path = path_of("tiny.gguf");
    tiny_model_write(&spec, path);
    int before = dup(0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(open_path(path, NULL), SENNIT_OK);
    assert_int_equal(truncate(path, 5000), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(open_path(path, NULL), SENNIT_FORMAT);
    int after = dup(0);
    assert_int_equal(after, before + 1);
    close(after);
    close(before);
    assert_int_equal(count_in_maps(path), 0);
    unlink(path);
}

static void every_allocation_fails(void **state)
{
    (void)state;
    struct tiny_spec spec = tiny_spec_default();
    const char *path = path_of("tiny.gguf");
    uint64_t n = 1;
    tiny_model_write(&spec, path);
    for (;; n++) {
        struct sn_heap heap;
        struct sn_gguf *g = NULL;
        struct sennit_error e = {.message = ""};
        sn_heap_init(&heap, NULL);
        sn_heap_fail_at(&heap, n);
        sennit_status status = sn_gguf_open(&g, &heap, path, &e);
        if (!sn_heap_failed(&heap)) {
            assert_int_equal(status, SENNIT_OK);
            sn_gguf_close(g);
            break;
        }
        assert_int_equal(status, SENNIT_NOMEM);
        assert_non_null(strstr(e.message, "out of memory"));
        assert_null(g);
        assert_int_equal(atomic_load(&heap.total), 0);
    }
    print_message("%llu allocations, each failed once\n", (unsigned long long)n - 1);
    assert_true(n > 6);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_errors),
        cmocka_unit_test(pages_are_dropped),
        cmocka_unit_test(content_id),
        cmocka_unit_test(nothing_stays_open),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
