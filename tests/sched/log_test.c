/* What the engine tells its host's logger: what is in force, and each time that something gave way. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"
#include "model/edit.h"
#include "model/model.h"
#include "sched/engine.h"

struct lines {
    int n[SENNIT_LOG_ERROR + 1];
    char last[1024];
};

static void log_line(void *ctx, sennit_log_level level, const char *message)
{
    struct lines *l = ctx;
    l->n[level]++;
    snprintf(l->last, sizeof l->last, "%s", message);
}

static int n_failed;

static void expect(const struct lines *l, int n_info, int n_warn, const char *text)
{
    if (l->n[SENNIT_LOG_INFO] == n_info && l->n[SENNIT_LOG_WARN] == n_warn && strstr(l->last, text))
        return;
    printf("FAILED: %d infos of %d, %d warnings of %d, the last is '%s', not '%s'\n", l->n[SENNIT_LOG_INFO], n_info,
           l->n[SENNIT_LOG_WARN], n_warn, l->last, text);
    n_failed++;
}

static struct sennit_model *open_model(bool nan)
{
    struct tiny_spec spec = smallest_spec();
    struct gguf_bytes file;
    struct sennit_model *m = NULL;
    tiny_model_build(&spec, &file);
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    sn_heap_init(&heap, NULL);
    if (sn_gguf_open_memory(&g, &heap, file.data, file.len, NULL) != SENNIT_OK)
        abort();
    if (nan)
        memset(file.data + sn_gguf_tensor(g, "output_norm.weight")->file_offset, 0xFF, 4);
    sn_gguf_close(g);
    if (sn_model_open_memory(&m, file.data, file.len, NULL, NULL) != SENNIT_OK)
        abort();
    gguf_bytes_free(&file);
    return m;
}

static struct sennit_engine *make(const struct sennit_model *m, uint64_t bytes, struct lines *l)
{
    struct sennit_error err = {.message = ""};
    struct sennit_engine_options o = {.logger = {log_line, l}, .isa = "scalar", .n_threads = 1, .max_rows = 2,
                                      .cache_bytes = bytes, .no_pin = true};
    struct sennit_engine *e = NULL;
    if (sennit_engine_create(&e, m, &o, &err) != SENNIT_OK) {
        printf("FAILED: %s\n", err.message);
        exit(1);
    }
    return e;
}

static sennit_finish answer(struct sennit_engine *e, struct sennit_session *s, size_t limit)
{
    static const int32_t prompt[] = {7, 8, 9};
    struct sennit_error err = {.message = ""};
    struct sennit_request_options o = {
        .prompt = prompt, .n_prompt = 3, .max_tokens = 2, .ignore_eos = true, .session = s};
    struct sennit_request *r = NULL;
    struct sennit_event event = {.kind = SENNIT_EVENT_NONE};
    if (sennit_engine_submit(e, &o, &r, &err) != SENNIT_OK) {
        printf("FAILED: %s\n", err.message);
        exit(1);
    }
    atomic_store(&e->heap.limit, limit);
    for (bool worked = true; worked;)
        sennit_engine_step(e, &worked, NULL);
    atomic_store(&e->heap.limit, 0);
    while (event.kind != SENNIT_EVENT_END)
        sennit_request_next_event(r, &event, 0, NULL);
    sennit_request_free(r);
    return event.finish;
}

/* A budget for one row: what a session holds has to go. */
static void rooms(const struct sennit_model *m)
{
    struct lines l = {0};
    struct sennit_engine *e = make(m, 64 << 20, &l);
    static const int32_t prompt[3];
    struct sennit_request_options o = {.prompt = prompt, .n_prompt = 3, .max_tokens = 2};
    uint64_t one = sn_request_need(e, &o);
    sennit_engine_free(e);
    expect(&l, 1, 0, "engine: scalar, 1 threads, 2 rows");
    expect(&l, 1, 0, "plain cache in F16, budget 67108864 bytes");
    e = make(m, one, &l);
    struct sennit_session *s = NULL;
    if (sennit_session_create(&s, e, NULL) != SENNIT_OK)
        abort();
    n_failed += answer(e, s, 0) != SENNIT_FINISH_LENGTH;
    expect(&l, 2, 0, "engine: ");
    n_failed += answer(e, NULL, 0) != SENNIT_FINISH_LENGTH;
    expect(&l, 3, 0, "a session's state of 4 tokens");
    sennit_session_free(s);
    sennit_engine_free(e);
}

/* The machine has nothing left when a row joins. */
static void no_memory(const struct sennit_model *m)
{
    struct lines l = {0};
    struct sennit_engine *e = make(m, 64 << 20, &l);
    n_failed += answer(e, NULL, 1) != SENNIT_FINISH_ERROR;
    expect(&l, 1, 1, "cannot join");
    n_failed += answer(e, NULL, 0) != SENNIT_FINISH_LENGTH; /* and goes on */
    expect(&l, 1, 1, "cannot join");
    sennit_engine_free(e);
}

int main(void)
{
    struct sennit_model *m = open_model(false), *broken = open_model(true);
    struct lines l = {0};
    rooms(m);
    no_memory(m);
    struct sennit_engine *e = make(broken, 64 << 20, &l);
    n_failed += answer(e, NULL, 0) != SENNIT_FINISH_ERROR;
    expect(&l, 1, 1, "a NaN or an infinity");
    sennit_engine_free(e);
    sennit_model_free(broken);
    sennit_model_free(m);
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
