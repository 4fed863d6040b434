/* Long texts: they work, the words joined are the text, and time grows about linearly (figures are
 * printed, not judged). Argument: the longest text in bytes. */
#include "text/tok_support.h"

#include <time.h>

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static uint64_t rng_state = 42;
static unsigned random_below(unsigned n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((rng_state >> 33) % n);
}

enum kind {
    ENGLISH,
    WORD,
    LETTERS,
    SPACES,
    NEWLINES,
    SPACES_THEN_WORD,
    DIGITS,
    PUNCTUATION,
    CJK,
    MARKS,
    MIXED,
    N_KINDS
};
static const char *const kind_names[] = {
    "English",  "one word \"aaa…\"", "random letters", "spaces",
    "newlines", "spaces+word",       "digits",         "punctuation",
    "CJK",      "combining marks",   "mixed"};

static const char english[] =
    "The ferry leaves at half past six, but nobody on the island looks at a clock before noon. "
    "When the fog is thick, which it often is in autumn, the captain rings the old bell twice and "
    "waits; it's said that he has never once left a passenger behind, though a few of them would "
    "have liked to stay.\n";
static const char *const mixed[] = {"word ",  "123",  " \t ", "é",  "漢字",     "🚀",
                                    "don't ", "\r\n", "--",   "नि", "\xC2\xA0", "x=1;"};

static void fill(char *s, size_t n, enum kind kind)
{
    static const char *const cjk = "我想在苹果工作", *const marks = "e\xCC\x81\xCC\xA3";
    size_t at = 0;
    while (at < n) {
        char one[2] = {'a', '\0'};
        const char *piece = one;
        switch (kind) {
        case ENGLISH:
            piece = english;
            break;
        case WORD:
            break;
        case LETTERS:
            one[0] = (char)('a' + random_below(26));
            break;
        case SPACES:
            one[0] = ' ';
            break;
        case NEWLINES:
            one[0] = '\n';
            break;
        case SPACES_THEN_WORD:
            one[0] = at + 1 < n ? ' ' : 'x';
            break;
        case DIGITS:
            one[0] = (char)('0' + random_below(10));
            break;
        case PUNCTUATION:
            one[0] = "!?-=.,"[random_below(6)];
            break;
        case CJK:
            piece = cjk;
            break;
        case MARKS:
            piece = marks;
            break;
        default:
            piece = mixed[random_below(SN_ARRAY_LEN(mixed))];
            break;
        }
        size_t len = strlen(piece);
        if (len > n - at) {
            memset(s + at, 'z', n - at);
            break;
        }
        memcpy(s + at, piece, len);
        at += len;
    }
}

static double time_one(const struct sn_tokenizer *t, struct sn_heap *heap, const char *text,
                       size_t n, bool check)
{
    struct sn_tokens out;
    sn_tokens_init(&out, heap);
    double start = now();
    encode(t, text, n, 0, &out);
    double took = now() - start;
    if (check) {
        struct sn_buf back;
        sn_buf_init(&back, heap, SN_USE_TEXT, 2 * n + 16);
        decode(t, out.ids, out.n, false, &back);
        CHECK(back.len == n && memcmp(back.data, text, n) == 0, "%zu bytes came back as %zu", n,
              back.len);
        sn_buf_free(&back);
    }
    sn_tokens_free(&out);
    return took;
}

static void run_all(const struct sn_tokenizer *t, struct sn_heap *heap, size_t n, bool complete)
{
    char *text = malloc(n);
    printf("%s, up to %zu bytes:\n", sn_tokenizer_pre(t), n);
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(text, n, (enum kind)kind);
        time_one(t, heap, text, sn_min_size(n, 4096), false);
        double tenth = time_one(t, heap, text, n / 10, false);
        double whole = time_one(t, heap, text, n, complete);
        printf("  %-18s %8.2f MB/s, ten times the text takes %5.1f times as long\n",
               kind_names[kind], (double)n / 1e6 / whole, whole / tenth);
        fflush(stdout);
    }
    free(text);
}

int main(int argc, char **argv)
{
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    static const char *const pres[] = {"gpt-2",        "llama-bpe", "deepseek-coder",
                                       "deepseek-llm", "falcon",    "gpt-4o"};
    for (size_t i = 0; i < SN_ARRAY_LEN(pres); i++) {
        char name[64];
        snprintf(name, sizeof name, "twin-%s.json", pres[i]);
        json_t *twin = golden_load(name);
        struct sn_tokenizer *t = golden_tokenizer(&heap, twin);
        run_all(t, &heap, n, i != 4); /* falcon's twin lacks some bytes */
        sn_tokenizer_free(t);
        json_decref(twin);
    }
    if (smollm2_path()) {
        struct gguf_vocab v;
        struct sn_tokenizer *t;
        struct sennit_error err;
        gguf_vocab_open(&v, &heap, smollm2_path());
        double start = now();
        CHECK(sn_tokenizer_create(&t, &heap, &v.desc, NULL, NULL, &err) == SENNIT_OK, "%s",
              err.message);
        printf("SmolLM2 vocabulary made in %.1f ms\n", 1e3 * (now() - start));
        run_all(t, &heap, n, true);
        sn_tokenizer_free(t);
        gguf_vocab_close(&v);
    }
    CHECK(atomic_load(&heap.total) == 0, "leak of %zu bytes", atomic_load(&heap.total));
    return 0;
}
