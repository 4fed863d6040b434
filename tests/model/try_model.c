#include "model/try_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/edit.h"
#include "model/model.h"
#include "sennit/engine.h"

/* Packing rounds each matrix up to whole panels of outputs, so a file can claim that many times its bytes; the rest
 * does not depend on it. */
enum { PACKED_FACTOR = 128, SLACK_BYTES = 1 << 20, CACHE_BYTES = 1 << 20, MAX_STEPS = 64 };

static _Noreturn void broken(const char *what, size_t n, const struct sennit_error *err)
{
    fprintf(stderr, "try_model: %s (%zu), '%s'\n", what, n, err->message);
    abort();
}

static void generate(struct sennit_engine *e)
{
    const int32_t prompt[] = {1, 0};
    struct sennit_error err = {.message = ""};
    struct sennit_request_options o = {.prompt = prompt, .n_prompt = 2, .max_tokens = 2, .ignore_eos = true};
    struct sennit_request *r = NULL;
    struct sennit_event event = {.kind = SENNIT_EVENT_NONE};
    bool worked = true;
    if (sennit_engine_submit(e, &o, &r, &err) != SENNIT_OK) {
        if (err.message[0] == '\0')
            broken("a refusal without words", 0, &err);
        return; /* a context of 1, or a cache larger than the budget */
    }
    for (int i = 0; i < MAX_STEPS && worked; i++)
        if (sennit_engine_step(e, &worked, &err) != SENNIT_OK)
            broken("a step failed", (size_t)i, &err);
    while (sennit_request_next_event(r, &event, 0, &err) == SENNIT_OK && event.kind != SENNIT_EVENT_END)
        if (event.kind == SENNIT_EVENT_NONE)
            broken("no end", 0, &err);
    if (event.finish != SENNIT_FINISH_ERROR && event.n_generated != 2)
        broken("not two tokens", event.n_generated, &err);
    sennit_request_free(r);
}

static void run(const struct sennit_model *m)
{
    struct counter c = {0};
    struct sennit_error err = {.message = ""};
    struct sennit_engine *e = NULL;
    struct sennit_engine_options o = {.allocator = counting(&c), .n_threads = 1, .max_rows = 1, .chunk = 2,
                                      .cache_bytes = CACHE_BYTES, .no_pin = true};
    if (sennit_engine_create(&e, m, &o, &err) == SENNIT_OK)
        generate(e);
    else if (err.message[0] == '\0')
        broken("an engine refused without words", 0, &err);
    sennit_engine_free(e);
    if (c.now != 0)
        broken("bytes of the engine left", c.now, &err);
}

bool try_model(const void *data, size_t n_bytes)
{
    struct counter c = {0};
    struct sennit_model_options o = {.allocator = counting(&c), .n_threads = 1};
    struct sennit_model *m = NULL;
    struct sennit_error err = {.message = ""};
    sennit_status st = sn_model_open_memory(&m, data, n_bytes, &o, &err);
    if ((st == SENNIT_OK) != (m != NULL) || (st != SENNIT_OK && (err.code != st || strlen(err.message) < 10)))
        broken("no model and no words", (size_t)st, &err);
    if (c.peak > PACKED_FACTOR * n_bytes + SLACK_BYTES)
        broken("memory", c.peak, &err);
    if (m)
        run(m);
    sn_model_free(m);
    if (c.now != 0)
        broken("bytes of the model left", c.now, &err);
    return st == SENNIT_OK;
}
