/* Seeded mutations of a small GGUF file: whatever the bytes become, opening either refuses with a
 * message or gives a file that can be read to the last byte; memory stays a small multiple of the
 * file's size, and all of it returns.
 *
 * usage: gguf_mutate COUNT SEED */
#include <stdio.h>
#include <stdlib.h>

#include "format/gguf.h"
#include "support/gguf_walk.h"
#include "support/gguf_write.h"
#include "support/tiny_model.h"

enum { SLACK_BYTES = 64 << 10 };

static void small_file(struct gguf_bytes *out, uint32_t version)
{
    static const uint8_t data[2 * 34 + 20];
    static const char *const words[] = {"the", "of", "", "a longer word"};
    struct gguf_writer w;
    gw_init(&w, version);
    gw_str(&w, "general.architecture", "llama");
    gw_u32(&w, "general.alignment", 32);
    gw_u32(&w, "llama.block_count", 2);
    gw_i64(&w, "an.i64", -3);
    gw_f32(&w, "llama.rope.freq_base", 10000.0f);
    gw_f64(&w, "an.f64", 0.1);
    gw_bool(&w, "flag", true);
    gw_array_str(&w, "tokenizer.ggml.tokens", words, 4);
    gw_array(&w, "tokenizer.ggml.token_type", GW_I32, (int32_t[]){1, 1, 3, 1}, 4);
    gw_array(&w, "flags", GW_BOOL, "\0\1\1\0", 4);
    gw_array(&w, "bytes", GW_U8, "12345", 5);
    gw_tensor(&w, "token_embd.weight", SENNIT_Q8_0, 2, (uint64_t[]){32, 2}, data, 68);
    gw_tensor(&w, "output_norm.weight", SENNIT_F32, 1, (uint64_t[]){5}, data, 20);
    gw_tensor(&w, "cube", SENNIT_I16, 4, (uint64_t[]){2, 2, 1, 2}, data, 16);
    gw_finish(&w, out);
}

static uint64_t below(uint64_t *state, uint64_t n)
{
    return tiny_random(state) % n;
}

/* Offset of a place where eight bytes hold a small number: a length, a count, a dimension or an
 * offset, mostly. */
static size_t find_length_field(const struct gguf_bytes *b, uint64_t *state)
{
    for (int tries = 0; tries < 1000; tries++) {
        size_t at = (size_t)below(state, b->len - 7);
        if (b->data[at] != 0 && b->data[at] < 128 &&
            memcmp(b->data + at + 1, "\0\0\0\0\0\0", 7) == 0)
            return at;
    }
    return 16;
}

static uint64_t nasty_number(uint64_t *state)
{
    static const uint64_t values[] = {
        0,          1,         2,          5,          8,          9,
        10,         13,        255,        65535,      65536,      UINT32_MAX,
        1ull << 32, INT64_MAX, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX - 7,
        UINT64_MAX};
    return values[below(state, sizeof values / sizeof *values)];
}

static void put_number(struct gguf_bytes *b, size_t at, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n && at + i < b->len; i++)
        b->data[at + i] = (uint8_t)(v >> (8 * i));
}

static void mutate_once(struct gguf_bytes *b, uint64_t *state)
{
    /* One statement per draw: the order of draws must not depend on the compiler. */
    size_t at = (size_t)below(state, b->len);
    uint64_t number = nasty_number(state);
    switch (below(state, 7)) {
    case 0: /* a bit */
        b->data[at] = (uint8_t)(b->data[at] ^ 1u << below(state, 8));
        break;
    case 1: /* cut short */
        b->len = at;
        break;
    case 2: /* eight random bytes */
        put_number(b, at, tiny_random(state), 8);
        break;
    case 3: /* an extreme number, anywhere */
        put_number(b, at, number, below(state, 2) ? 8 : 4);
        break;
    case 4: /* an extreme number where a length is */
        put_number(b, find_length_field(b, state), number, 8);
        break;
    case 5: { /* a length that is a little off */
        size_t field = find_length_field(b, state);
        b->data[field] = (uint8_t)(b->data[field] + below(state, 5) - 2);
        break;
    }
    default: /* a piece copied over another */
        for (size_t i = 0, from = (size_t)below(state, b->len), n = (size_t)(number % 64); i < n;
             i++)
            if (at + i < b->len && from + i < b->len)
                b->data[at + i] = b->data[from + i];
    }
}

/* True when it opened. Returns memory checks as an abort, with the number of the mutation. */
static bool check(const struct gguf_bytes *file, uint64_t number)
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    struct sennit_error err = {.message = ""};
    sn_heap_init(&heap, NULL);
    sennit_status status = sn_gguf_open_memory(&g, &heap, file->data, file->len, &err);
    bool opened = status == SENNIT_OK;
    if (opened)
        gguf_walk(g);
    sn_gguf_close(g);
    size_t peak = atomic_load(&heap.peak), total = atomic_load(&heap.total);
    bool explained = opened || (err.code == status && strlen(err.message) > 10);
    if (total == 0 && peak <= 4 * file->len + SLACK_BYTES && explained && opened == (g != NULL))
        return opened;
    fprintf(stderr, "mutation %llu: total %zu, peak %zu of a file of %zu bytes, message '%s'\n",
            (unsigned long long)number, total, peak, file->len, err.message);
    exit(1);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 2000,
             seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t n_opened = 0;
    struct gguf_bytes originals[2];
    small_file(&originals[0], 2);
    small_file(&originals[1], 3);
    for (int i = 0; i < 2; i++)
        if (!check(&originals[i], 0))
            return fprintf(stderr, "the unchanged file does not open\n"), 1;
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t state = seed * 1000003u + i, n_steps = i % 16 == 0 ? 3 : i % 4 == 0 ? 2 : 1;
        struct gguf_bytes b = {0}, exact = {0};
        gguf_bytes_put(&b, originals[i % 2].data, originals[i % 2].len);
        while (n_steps-- > 0 && b.len > 8)
            mutate_once(&b, &state);
        gguf_bytes_put(&exact, b.data,
                       b.len); /* an exact block, so that a sanitizer sees one byte too many */
        n_opened += check(&exact, i);
        gguf_bytes_free(&exact);
        gguf_bytes_free(&b);
    }
    for (int i = 0; i < 2; i++)
        gguf_bytes_free(&originals[i]);
    printf(
        "%llu mutations, seed %llu: %llu opened and were read in full, the others were refused\n",
        (unsigned long long)count, (unsigned long long)seed, (unsigned long long)n_opened);
    /* Both kinds must occur, or the mutations test nothing. */
    return count >= 100 && (n_opened == 0 || n_opened > count * 9 / 10);
}
