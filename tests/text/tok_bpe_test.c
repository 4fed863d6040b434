/* BPE against a simulation that is too slow to be wrong, on random merge tables; and round trips on
 * random Unicode. The tables are wilder than training makes them: several merges give the same
 * token, ranks are shuffled so that merges of lower rank appear late, some bytes have no token.
 * Arguments: number of cases, seed. */
#include "text/tok_support.h"

#include "text/bpe_internal.h"
#include "text/utf8.h"

enum { MAX_TOKENS = 120, MAX_LEN = 60 };

static uint64_t rng_state;
static unsigned below(unsigned n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((rng_state >> 33) % n);
}

/* ---- a random table ---- */

struct table {
    char text[MAX_TOKENS][32];
    int32_t n_tokens;
    struct {
        int32_t left, right, result;
    } merge[2 * MAX_TOKENS];
    size_t n_merges;
};

static int32_t token_of(struct table *t, const char *text)
{
    for (int32_t i = 0; i < t->n_tokens; i++)
        if (strcmp(t->text[i], text) == 0)
            return i;
    if (t->n_tokens == MAX_TOKENS)
        return -1;
    strcpy(t->text[t->n_tokens], text);
    return t->n_tokens++;
}

static void random_table(struct table *t, unsigned n_letters)
{
    memset(t, 0, sizeof *t);
    for (unsigned i = 0; i < n_letters; i++)
        token_of(t, (char[]){(char)('a' + i), '\0'});
    size_t want = 1 + below(80);
    for (int tries = 0; tries < 1000 && t->n_merges < want; tries++) {
        int32_t a = (int32_t)below((unsigned)t->n_tokens),
                b = (int32_t)below((unsigned)t->n_tokens);
        char joined[64];
        snprintf(joined, sizeof joined, "%s%s", t->text[a], t->text[b]);
        bool known = false;
        for (size_t i = 0; i < t->n_merges; i++)
            known |= t->merge[i].left == a && t->merge[i].right == b;
        int32_t r = known || strlen(joined) > 12 ? -1 : token_of(t, joined);
        if (r < 0)
            continue;
        t->merge[t->n_merges].left = a;
        t->merge[t->n_merges].right = b;
        t->merge[t->n_merges++].result = r;
    }
    if (below(2)) /* ranks in another order than training gives */
        for (size_t i = t->n_merges; i > 1; i--) {
            size_t k = below((unsigned)i);
            struct table copy = *t;
            t->merge[i - 1] = copy.merge[k];
            t->merge[k] = copy.merge[i - 1];
        }
}

/* ---- the simulation: entries in a plain list, the least taken by a scan ---- */

struct slow {
    const struct table *t;
    int32_t id[MAX_LEN]; /* -1: merged into the symbol to its left */
    size_t n;
    uint64_t queued[64 * MAX_LEN];
    size_t n_queued;
};

static size_t after(const struct slow *s, size_t i)
{
    do
        i++;
    while (i < s->n && s->id[i] < 0);
    return i;
}

static long rank_of(const struct slow *s, int32_t a, int32_t b)
{
    for (size_t r = 0; r < s->t->n_merges; r++)
        if (s->t->merge[r].left == a && s->t->merge[r].right == b)
            return (long)r;
    return -1;
}

static void slow_queue(struct slow *s, size_t i)
{
    size_t next = after(s, i);
    long r = next < s->n ? rank_of(s, s->id[i], s->id[next]) : -1;
    CHECK(s->n_queued < SN_ARRAY_LEN(s->queued), "queue full");
    if (r >= 0)
        s->queued[s->n_queued++] = (uint64_t)r << 32 | i;
}

static void slow_merge(struct slow *s)
{
    for (size_t i = 0; i < s->n; i++)
        slow_queue(s, i);
    while (s->n_queued > 0) {
        size_t least = 0;
        for (size_t k = 1; k < s->n_queued; k++)
            least = s->queued[k] < s->queued[least] ? k : least;
        uint64_t key = s->queued[least];
        s->queued[least] = s->queued[--s->n_queued];
        size_t i = (size_t)(key & UINT32_MAX), next = after(s, i);
        if (s->id[i] < 0 || next >= s->n)
            continue;
        long now = rank_of(s, s->id[i], s->id[next]);
        if (now < 0 || s->t->merge[now].result != s->t->merge[key >> 32].result)
            continue;
        s->id[i] = s->t->merge[now].result;
        s->id[next] = -1;
        for (size_t k = i; k-- > 0;)
            if (s->id[k] >= 0) {
                slow_queue(s, k);
                break;
            }
        slow_queue(s, i);
    }
}

/* ---- comparison ---- */

static void check_word(const struct table *t, struct sn_bpe *bpe, struct sn_bpe_scratch *scratch,
                       struct sn_tokens *out, const char *word, size_t n, uint64_t seed)
{
    struct slow s = {.t = t};
    for (size_t i = 0; i < n; i++)
        if (bpe->byte_id[(unsigned char)word[i]] >= 0)
            s.id[s.n++] = bpe->byte_id[(unsigned char)word[i]];
    size_t kept = s.n;
    slow_merge(&s);
    for (int path = 0; path < 2; path++) { /* the heap, then the long words' queue */
        size_t dropped = 0, k = 0;
        sn_bpe_scratch_free(scratch, bpe);
        bpe->long_word = path ? 1 : 2048;
        out->n = 0;
        CHECK(sn_bpe_encode(bpe, scratch, word, n, out, &dropped, NULL) == SENNIT_OK, "encode");
        CHECK(dropped == n - kept, "%zu dropped, %zu wanted", dropped, n - kept);
        for (size_t i = 0; i < s.n; i++)
            if (s.id[i] >= 0) {
                CHECK(k < out->n && out->ids[k] == s.id[i], "case %llu, path %d: '%.*s' token %zu",
                      (unsigned long long)seed, path, (int)n, word, k);
                k++;
            }
        CHECK(k == out->n, "case %llu, path %d: '%.*s': %zu tokens, %zu wanted",
              (unsigned long long)seed, path, (int)n, word, out->n, k);
    }
}

static void random_merges(struct sn_heap *heap, uint64_t seed)
{
    struct table t;
    struct sn_bpe bpe;
    struct sn_bpe_scratch scratch = {0};
    struct sn_tokens out;
    rng_state = seed;
    unsigned letters = 1 + below(4);
    random_table(&t, letters);
    sn_tokens_init(&out, heap);
    CHECK(sn_bpe_init(&bpe, heap, t.n_merges, NULL) == SENNIT_OK, "init");
    for (unsigned i = 0; i < letters; i++)
        bpe.byte_id['a' + i] = (int32_t)i;
    for (size_t r = 0; r < t.n_merges; r++)
        sn_bpe_set(&bpe, r, t.merge[r].left, t.merge[r].right, t.merge[r].result);
    for (int words = 0; words < 20; words++) {
        char word[MAX_LEN];
        size_t n = below(MAX_LEN + 1);
        for (size_t i = 0; i < n; i++)
            word[i] = below(20) ? (char)('a' + below(letters)) : '?'; /* '?' has no token */
        check_word(&t, &bpe, &scratch, &out, word, n, seed);
    }
    bpe.long_word = 1;
    sn_bpe_scratch_free(&scratch, &bpe);
    sn_tokens_free(&out);
    sn_bpe_free(&bpe);
}

/* ---- round trips ---- */

static size_t random_text(char *s, size_t max)
{
    size_t n = 0, chars = below(60);
    for (size_t i = 0; i < chars && n + 4 <= max; i++) {
        static const uint32_t top[] = {0x80,   0x80,    0x80,    0x250,   0x800,
                                       0x3100, 0x10000, 0x20000, 0x110000};
        uint32_t c = below(top[below(SN_ARRAY_LEN(top))]);
        if (below(4) == 0)
            c = (uint32_t) " \n\r\t'!0"[below(7)];
        n += sn_utf8_put(s + n, c);
    }
    return n;
}

static void round_trips(struct sn_heap *heap, const struct sn_tokenizer *t, size_t n_texts)
{
    struct sn_tokens ids;
    struct sn_buf back;
    sn_tokens_init(&ids, heap);
    sn_buf_init(&back, heap, SN_USE_TEXT, 1 << 20);
    for (size_t i = 0; i < n_texts; i++) {
        char text[256];
        size_t n = random_text(text, sizeof text);
        encode(t, text, n, 0, &ids);
        decode(t, ids.ids, ids.n, false, &back);
        CHECK(back.len == n && (n == 0 || memcmp(back.data, text, n) == 0),
              "%s: text %zu came back otherwise", sn_tokenizer_pre(t), i);
    }
    sn_tokens_free(&ids);
    sn_buf_free(&back);
}

int main(int argc, char **argv)
{
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000,
             seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    printf("%llu merge tables from seed %llu\n", (unsigned long long)n, (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++)
        random_merges(&heap, seed + i);
    static const char *const pres[] = {"gpt-2",        "llama-bpe",   "qwen2",  "deepseek-coder",
                                       "deepseek-llm", "deepseek-v3", "tekken", "gpt-4o"};
    for (size_t i = 0; i < SN_ARRAY_LEN(pres); i++) {
        char name[64];
        snprintf(name, sizeof name, "twin-%s.json", pres[i]);
        json_t *twin = golden_load(name);
        struct sn_tokenizer *t = golden_tokenizer(&heap, twin);
        rng_state = seed;
        round_trips(&heap, t, (size_t)n);
        sn_tokenizer_free(t);
        json_decref(twin);
    }
    CHECK(atomic_load(&heap.total) == 0, "leak of %zu bytes", atomic_load(&heap.total));
    return 0;
}
