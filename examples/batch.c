/* Several prompts in one batch, stepped by this thread: batch MODEL.gguf PROMPT...
 *
 * Each prompt is a row. The rows share every step, and each one says what it would have said alone: run the program
 * with one prompt, then with many, and compare the digests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sennit/sennit.h>

static void die(const char *what, const struct sennit_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    exit(1);
}

/* Prints what row `i` has said since the last call. True when it has ended. */
static int listen(int i, struct sennit_request *request)
{
    struct sennit_error err;
    struct sennit_event event;
    do {
        if (sennit_request_next_event(request, &event, 0, &err))
            die("event", &err);
        if (event.kind == SENNIT_EVENT_TOKEN)
            printf("row %d: token %d \"%.*s\"\n", i, event.id, (int)event.n_text, event.text);
        if (event.kind == SENNIT_EVENT_END)
            printf("row %d: %s after %zu tokens, digest %016llx\n", i, sennit_finish_name(event.finish),
                   event.n_generated, (unsigned long long)event.digest);
    } while (event.kind != SENNIT_EVENT_NONE && event.kind != SENNIT_EVENT_END);
    return event.kind == SENNIT_EVENT_END;
}

int main(int argc, char **argv)
{
    struct sennit_error err;
    struct sennit_model *model;
    struct sennit_engine *engine;
    int n_rows = argc - 2, open = n_rows;
    if (n_rows < 1) {
        fprintf(stderr, "usage: batch MODEL.gguf PROMPT...\n");
        return 2;
    }
    if (sennit_model_open(&model, argv[1], NULL, &err))
        die("model", &err);
    const struct sennit_engine_options options = {.max_rows = (uint32_t)n_rows};
    if (sennit_engine_create(&engine, model, &options, &err))
        die("engine", &err);

    struct sennit_request **rows = calloc((size_t)n_rows, sizeof *rows);
    char *ended = calloc((size_t)n_rows, 1);
    if (!rows || !ended)
        return 1;
    for (int i = 0; i < n_rows; i++) {
        struct sennit_tokens prompt = {0};
        const char *text = argv[i + 2];
        if (sennit_tokenize(sennit_model_tokenizer(model), text, strlen(text), SENNIT_TOKENIZE_BOS, &prompt, &err))
            die("prompt", &err);
        const struct sennit_request_options o = {.prompt = prompt.ids, .n_prompt = prompt.n_ids, .max_tokens = 16};
        if (sennit_engine_submit(engine, &o, &rows[i], &err)) /* copies the ids */
            die("submit", &err);
        sennit_tokens_free(&prompt);
    }
    while (open > 0) {
        bool worked;
        if (sennit_engine_step(engine, &worked, &err))
            die("step", &err);
        for (int i = 0; i < n_rows; i++)
            if (!ended[i] && listen(i, rows[i])) {
                ended[i] = 1;
                open--;
            }
    }
    for (int i = 0; i < n_rows; i++)
        sennit_request_free(rows[i]);
    free(rows);
    free(ended);
    sennit_engine_free(engine);
    sennit_model_free(model);
    return 0;
}
