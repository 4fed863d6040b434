/* `alloc`: every allocation of making and using a tokenizer fails in turn: an error each time, no
 * crash, no leak. `threads`: one tokenizer, several threads at once, the same ids. */
#include "text/tok_support.h"

#include <pthread.h>

/* All kinds of work: replaced bytes, special tokens, segments, a word long enough for bpe_long.c,
 * decoding. */
static sennit_status use(const struct sn_tokenizer *t, struct sn_heap *heap,
                         struct sennit_error *err, size_t *n_ids)
{
    char text[6000];
    memset(text, 'a', sizeof text);
    memcpy(text, "he said: hello\xFF<|im_end|>\n\xE2\x82 don't 12 ", 38);
    struct sn_tokens ids;
    struct sn_buf buf;
    struct sn_detok d;
    const struct sn_text_segment seg[] = {{"<|im_start|>", 12, true}, {"<|im_end|> x", 12, false}};
    sn_tokens_init(&ids, heap);
    sn_buf_init(&buf, heap, SN_USE_TEXT, 1 << 20);
    sn_detok_init(&d, t, false);
    sennit_status status = sn_tokenize(t, text, sizeof text, SN_TOK_PARSE_SPECIAL, &ids, NULL, err);
    if (status == SENNIT_OK)
        status = sn_tokenize_segments(t, seg, 2, 0, &ids, NULL, err);
    for (size_t i = 0; i < ids.n && status == SENNIT_OK; i++)
        status = sn_detok_feed(&d, ids.ids[i], &buf, err);
    if (status == SENNIT_OK)
        status = sn_detok_flush(&d, &buf, err);
    *n_ids = ids.n;
    sn_tokens_free(&ids);
    sn_buf_free(&buf);
    return status;
}

static sennit_status make_and_use(struct sn_heap *heap, const char *pre, struct small_vocab *v,
                                  struct sennit_error *err, size_t *n_ids)
{
    struct sn_tokenizer *t = NULL;
    SN_TRY(sn_tokenizer_create(&t, heap, &v->desc, pre, NULL, err));
    sennit_status status = use(t, heap, err, n_ids);
    sn_tokenizer_free(t);
    return status;
}

static int run_alloc(void)
{
    static const char *const pres[] = {"gpt-2", "llama-bpe", "deepseek-llm"};
    static struct small_vocab v;
    small_vocab_init(&v);
    for (size_t i = 0; i < SN_ARRAY_LEN(pres); i++) {
        struct sn_heap heap;
        size_t n_ids;
        sn_heap_init(&heap, NULL);
        for (uint64_t n = 1;; n++) {
            struct sennit_error err = {0};
            sn_heap_fail_at(&heap, n);
            sennit_status status = make_and_use(&heap, pres[i], &v, &err, &n_ids);
            bool failed = sn_heap_failed(&heap);
            CHECK(atomic_load(&heap.total) == 0, "%s: leak of %zu bytes after failure %llu",
                  pres[i], atomic_load(&heap.total), (unsigned long long)n);
            if (!failed) {
                CHECK(status == SENNIT_OK, "%s", err.message);
                printf("%s: %llu allocations failed in turn\n", pres[i], (unsigned long long)n - 1);
                CHECK(n > 30, "too few allocations to be true");
                break;
            }
            CHECK(status == SENNIT_NOMEM && err.code == SENNIT_NOMEM && err.message[0],
                  "%s: allocation %llu failed, status %d '%s'", pres[i], (unsigned long long)n,
                  (int)status, err.message);
        }
    }
    return 0;
}

struct work {
    const struct sn_tokenizer *t;
    struct sn_heap *heap;
    size_t n_ids;
};

static void *work_main(void *arg)
{
    struct work *w = arg;
    for (int i = 0; i < 20; i++) {
        struct sennit_error err;
        CHECK(use(w->t, w->heap, &err, &w->n_ids) == SENNIT_OK, "%s", err.message);
    }
    return NULL;
}

static int run_threads(void)
{
    static struct small_vocab v;
    struct sn_heap heap;
    struct sn_tokenizer *t;
    struct sennit_error err;
    struct work work[3];
    pthread_t thread[3];
    size_t n_ids;
    small_vocab_init(&v);
    sn_heap_init(&heap, NULL);
    CHECK(sn_tokenizer_create(&t, &heap, &v.desc, NULL, NULL, &err) == SENNIT_OK, "%s",
          err.message);
    CHECK(use(t, &heap, &err, &n_ids) == SENNIT_OK && n_ids > 100, "%s", err.message);
    for (size_t i = 0; i < 3; i++) {
        work[i] = (struct work){t, &heap, 0};
        CHECK(pthread_create(&thread[i], NULL, work_main, &work[i]) == 0, "pthread_create");
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        CHECK(work[i].n_ids == n_ids, "thread %zu made %zu ids, not %zu", i, work[i].n_ids, n_ids);
    }
    sn_tokenizer_free(t);
    CHECK(atomic_load(&heap.total) == 0, "leak of %zu bytes", atomic_load(&heap.total));
    return 0;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "threads") == 0 ? run_threads() : run_alloc();
}
