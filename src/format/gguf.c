/* Life of a GGUF reader: mapping, header, pages, hash; and the name tables. */
#include "format/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* the state's size: it lives on the stack */
#include <xxhash.h>

#include "format/gguf_internal.h"

enum { HASH_STEP_BYTES = 4 << 20 };

/* ---- names ----------------------------------------------------------------------------------- */

sennit_status gguf_names_init(struct gguf_names *names, struct sn_heap *heap, size_t n,
                              struct sennit_error *err)
{
    if (n == 0)
        return SENNIT_OK;
    size_t n_slots = 4;
    while (n_slots < n + n / 2)
        n_slots *= 2;
    names->slots = sn_calloc(heap, SN_USE_MISC, n_slots, sizeof *names->slots);
    if (!names->slots)
        return sn_fail(err, SENNIT_NOMEM, "out of memory: a table of %zu names needs %zu bytes", n,
                       n_slots * sizeof *names->slots);
    names->n_slots = n_slots;
    return SENNIT_OK;
}

void gguf_names_free(struct gguf_names *names, struct sn_heap *heap)
{
    sn_free(heap, SN_USE_MISC, names->slots, names->n_slots * sizeof *names->slots);
    *names = (struct gguf_names){0};
}

size_t gguf_names_find(const struct gguf_names *names, const struct sn_gguf *g,
                       gguf_name_of name_of, struct sn_gguf_str name, size_t *slot)
{
    if (names->n_slots == 0)
        return SN_GGUF_NONE;
    size_t mask = names->n_slots - 1;
    size_t at = (size_t)XXH3_64bits_withSeed(name.data, name.len, g->hash_seed) & mask;
    for (; names->slots[at] != 0; at = (at + 1) & mask) {
        size_t index = names->slots[at] - 1;
        struct sn_gguf_str found = name_of(g, index);
        if (found.len == name.len && memcmp(found.data, name.data, name.len) == 0)
            return index;
    }
    if (slot)
        *slot = at;
    return SN_GGUF_NONE;
}

struct sn_gguf_str gguf_entry_name(const struct sn_gguf *g, size_t index)
{
    const struct gguf_entry *e = &g->entries[index];
    return (struct sn_gguf_str){(const char *)g->file + e->key_at, e->key_len};
}

struct sn_gguf_str gguf_tensor_name(const struct sn_gguf *g, size_t index)
{
    return g->tensors[index].name;
}

/* ---- header ---------------------------------------------------------------------------------- */

/* What a file that is no GGUF may be instead, by its first bytes. */
static const char *other_kind(const uint8_t *p)
{
    static const struct {
        const char *magic, *hint;
    } kinds[] = {
        {"FUGG",
         "this is a big-endian GGUF file, which is not supported: convert it to little-endian"},
        {"lmgg", "this is a ggml file from before GGUF: convert the original model again"},
        {"tjgg", "this is a GGJT file from before GGUF: convert the original model again"},
        {"vers", "this looks like a Git LFS pointer: fetch the file itself with 'git lfs pull'"},
        {"<!DO", "this looks like a web page: check the download address"},
        {"<!do", "this looks like a web page: check the download address"},
        {"<htm", "this looks like a web page: check the download address"},
        {"PK\003\004", "this looks like a zip or PyTorch file: convert the model to GGUF"},
    };
    for (size_t i = 0; i < SN_ARRAY_LEN(kinds); i++)
        if (memcmp(p, kinds[i].magic, 4) == 0)
            return kinds[i].hint;
    return "it must begin with the letters GGUF: check that this is the right file";
}

static sennit_status check_version(uint32_t version, struct sennit_error *err)
{
    uint32_t swapped = __builtin_bswap32(version);
    if (version >= 2 && version <= 3)
        return SENNIT_OK;
    if (swapped >= 1 && swapped <= 3)
        return sn_fail(
            err, SENNIT_UNSUPPORTED,
            "version (byte 4) is %u in reverse byte order: a big-endian GGUF file, which "
            "is not supported: convert it to little-endian",
            swapped);
    if (version == 1)
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "version (byte 4) is 1, an early GGUF form with other lengths: convert the "
                       "original model again (versions 2 and 3 are read)");
    return sn_fail(err, SENNIT_UNSUPPORTED,
                   "version (byte 4) is %u, but versions 2 and 3 are what this build reads",
                   version);
}

/* A count that the file has no room for is refused before memory is taken for it. */
static sennit_status check_count(const struct sn_gguf *g, const char *what, int at, uint64_t n,
                                 size_t min_bytes, struct sennit_error *err)
{
    uint64_t room = (g->n_bytes - GGUF_HEADER_BYTES) / min_bytes;
    if (n <= room && n < UINT32_MAX)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_FORMAT,
                   "%s (byte %d) is %llu, but the file's %zu bytes have room for at most %llu: the "
                   "file is damaged, or an incomplete download",
                   what, at, (unsigned long long)n, g->n_bytes, (unsigned long long)room);
}

static sennit_status parse(struct sn_gguf *g, struct sennit_error *err)
{
    if (g->n_bytes >= 4 && memcmp(g->file, "GGUF", 4) != 0)
        return sn_fail(err, SENNIT_FORMAT, "magic (byte 0): not a GGUF file: %s",
                       other_kind(g->file));
    if (g->n_bytes < GGUF_HEADER_BYTES)
        return sn_fail(err, SENNIT_FORMAT,
                       "header: the file has %zu bytes and a GGUF header %d: likely an incomplete "
                       "download, fetch it again",
                       g->n_bytes, GGUF_HEADER_BYTES);
    g->version = (uint32_t)gguf_load(g->file + 4, 4);
    SN_TRY(check_version(g->version, err));
    uint64_t n_tensors = gguf_load(g->file + 8, 8), n_entries = gguf_load(g->file + 16, 8);
    SN_TRY(check_count(g, "tensor_count", 8, n_tensors, GGUF_MIN_TENSOR_BYTES, err));
    SN_TRY(check_count(g, "metadata_kv_count", 16, n_entries, GGUF_MIN_KV_BYTES, err));
    struct gguf_cursor c = {.g = g, .at = GGUF_HEADER_BYTES, .err = err};
    SN_TRY(gguf_parse_metadata(&c, n_entries));
    return gguf_parse_tensors(&c, n_tensors);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Maps the file; an empty one is left unmapped with n_bytes 0. */
static sennit_status map_descriptor(struct sn_gguf *g, int fd, struct sennit_error *err)
{
    struct stat st;
    char text[128];
    if (fstat(fd, &st) != 0)
        return sn_fail(err, SENNIT_IO, "cannot read the file's size: %s",
                       strerror_r(errno, text, sizeof text));
    if (!S_ISREG(st.st_mode))
        return sn_fail(err, SENNIT_IO, "not a regular file: give the path of a .gguf file");
    if ((uint64_t)st.st_size > SIZE_MAX / 2)
        return sn_fail(err, SENNIT_TOO_BIG,
                       "the file has %llu bytes, more than this machine can map",
                       (unsigned long long)st.st_size);
    if (st.st_size == 0)
        return SENNIT_OK;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return sn_fail(err, SENNIT_IO, "cannot map the file's %llu bytes: %s",
                       (unsigned long long)st.st_size, strerror_r(errno, text, sizeof text));
    g->file = p;
    g->n_bytes = (size_t)st.st_size;
    g->mapped = true;
    return SENNIT_OK;
}

static sennit_status map_file(struct sn_gguf *g, const char *path, struct sennit_error *err)
{
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* NONBLOCK: a pipe must not hang the open */
    if (fd < 0) {
        char text[128];
        sennit_status status = errno == ENOENT ? SENNIT_NOT_FOUND : SENNIT_IO;
        return sn_fail(err, status, "cannot open the file: %s",
                       strerror_r(errno, text, sizeof text));
    }
    sennit_status status = map_descriptor(g, fd, err);
    close(fd);
    return status;
}

static struct sn_gguf *new_reader(struct sn_heap *heap, struct sennit_error *err)
{
    struct sn_gguf *g = sn_calloc(heap, SN_USE_MISC, 1, sizeof *g);
    if (!g) {
        sn_fail(err, SENNIT_NOMEM, "out of memory: a GGUF reader needs %zu bytes", sizeof *g);
        return NULL;
    }
    g->heap = heap;
    g->alignment = 32; /* the specification's default */
    /* An address that a file's author cannot know, so that keys cannot be chosen to collide. It
     * changes only where a name sits in the table, never what is found. */
    g->hash_seed = (uint64_t)(uintptr_t)g * 0x9E3779B97F4A7C15u;
    return g;
}

sennit_status sn_gguf_open(struct sn_gguf **out, struct sn_heap *heap, const char *path,
                           struct sennit_error *err)
{
    struct sn_gguf *g = new_reader(heap, err);
    if (!g)
        return SENNIT_NOMEM;
    sennit_status status = map_file(g, path, err);
    if (status == SENNIT_OK)
        status = parse(g, err);
    if (status != SENNIT_OK) {
        sn_error_prefix(err, "%.200s", path);
        sn_gguf_close(g);
        return status;
    }
    *out = g;
    return SENNIT_OK;
}

sennit_status sn_gguf_open_memory(struct sn_gguf **out, struct sn_heap *heap, const void *data,
                                  size_t n_bytes, struct sennit_error *err)
{
    if ((uintptr_t)data % 8 != 0)
        return sn_fail(err, SENNIT_INVALID, "the GGUF data must be aligned to 8 bytes in memory");
    struct sn_gguf *g = new_reader(heap, err);
    if (!g)
        return SENNIT_NOMEM;
    g->file = data;
    g->n_bytes = n_bytes;
    sennit_status status = parse(g, err);
    if (status != SENNIT_OK) {
        sn_gguf_close(g);
        return status;
    }
    *out = g;
    return SENNIT_OK;
}

void sn_gguf_close(struct sn_gguf *g)
{
    if (!g)
        return;
    gguf_names_free(&g->entry_names, g->heap);
    gguf_names_free(&g->tensor_names, g->heap);
    sn_free(g->heap, SN_USE_MISC, g->entries, g->n_entries * sizeof *g->entries);
    sn_free(g->heap, SN_USE_MISC, g->strings, g->n_strings * sizeof *g->strings);
    sn_free(g->heap, SN_USE_MISC, g->tensors, g->n_tensors * sizeof *g->tensors);
    if (g->mapped)
        munmap((void *)(uintptr_t)g->file, g->n_bytes);
    sn_free(g->heap, SN_USE_MISC, g, sizeof *g);
}

uint32_t sn_gguf_version(const struct sn_gguf *g)
{
    return g->version;
}

uint32_t sn_gguf_alignment(const struct sn_gguf *g)
{
    return g->alignment;
}

size_t sn_gguf_file_bytes(const struct sn_gguf *g)
{
    return g->n_bytes;
}

/* In steps whose pages are dropped at once: hashing a model must not make all of it resident. */
uint64_t sn_gguf_file_hash(const struct sn_gguf *g)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t at = 0; at < g->n_bytes; at += HASH_STEP_BYTES) {
        size_t n = sn_min_size(HASH_STEP_BYTES, g->n_bytes - at);
        XXH3_64bits_update(&state, g->file + at, n);
        sn_gguf_drop_pages(g, g->file + at, n);
    }
    return XXH3_64bits_digest(&state);
}

void sn_gguf_drop_pages(const struct sn_gguf *g, const void *ptr, size_t n_bytes)
{
    uintptr_t base = (uintptr_t)g->file, p = (uintptr_t)ptr;
    if (!g->mapped || p < base || p - base > g->n_bytes || n_bytes > g->n_bytes - (p - base))
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = sn_round_up(p, page), last = (p + n_bytes) / page * page;
    if (p + n_bytes == base + g->n_bytes)
        last = sn_round_up(p + n_bytes, page); /* the file's last page has nothing else in it */
    if (first < last)
        (void)madvise((void *)first, last - first, MADV_DONTNEED);
}
