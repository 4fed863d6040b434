#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_answer(struct cli_row *row, int32_t id)
{
    if ((row->n_answer & (row->n_answer - 1)) == 0) /* room doubles at every power of two */
        row->answer = cli_realloc(row->answer, (row->n_answer ? row->n_answer * 2 : 1) * sizeof *row->answer);
    row->answer[row->n_answer++] = id;
}

static json_t *logprob_json(int32_t id, float logprob)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_integer(id));
    json_object_set_new(o, "logprob", json_real((double)logprob));
    return o;
}

static json_t *token_json(const struct sennit_event *e)
{
    json_t *o = logprob_json(e->id, e->logprob), *top = json_array();
    for (uint32_t i = 0; i < e->n_top; i++)
        json_array_append_new(top, logprob_json(e->top[i].id, e->top[i].logprob));
    json_object_set_new(o, "top", top);
    return o;
}

static void add_prompt_logprobs(struct cli_row *row, const struct sennit_event *e)
{
    bool first = !row->prompt_logprobs; /* has nothing before it, so no probability either */
    if (first)
        row->prompt_logprobs = json_array();
    json_t *o = token_json(e);
    if (first) {
        json_object_del(o, "logprob");
        json_object_del(o, "top");
    }
    json_array_append_new(row->prompt_logprobs, o);
}

static void add_logprobs(struct cli_row *row, const struct sennit_event *e)
{
    if (!row->options.want_logprob && !row->options.n_logprobs)
        return;
    json_t *o = token_json(e);
    if (row->options.forced)
        json_object_set_new(o, "forced_choice", json_integer(e->forced_choice));
    if (!row->logprobs)
        row->logprobs = json_array();
    json_array_append_new(row->logprobs, o);
}

static void take_text(struct cli_row *row, const struct sennit_event *e, cli_text_fn on_text, void *ctx)
{
    if (e->n_text == 0)
        return;
    cli_text_add(&row->text, e->text, e->n_text);
    if (on_text)
        on_text(ctx, row, e->text, e->n_text);
}

static void take_end(struct cli_row *row, const struct sennit_event *e)
{
    row->ended = true;
    row->finish = e->finish;
    row->error = e->error;
    row->digest = e->digest;
    row->n_prompt = e->n_prompt;
    row->n_reused = e->n_reused;
    row->n_generated = e->n_generated;
    row->n_prefill_spans = e->n_prefill_spans;
}

/* Reads all events that are there. */
static int drain(struct cli_row *row, cli_text_fn on_text, void *ctx)
{
    for (;;) {
        struct sennit_event e = {0};
        struct sennit_error err = {0};
        if (sennit_request_next_event(row->request, &e, 0, &err) != SENNIT_OK) {
            cli_fail(&err);
            return CLI_FAILED;
        }
        switch (e.kind) {
        case SENNIT_EVENT_NONE:
            return CLI_OK;
        case SENNIT_EVENT_START:
            break;
        case SENNIT_EVENT_PROMPT:
            add_prompt_logprobs(row, &e);
            break;
        case SENNIT_EVENT_TOKEN:
            add_answer(row, e.id);
            add_logprobs(row, &e);
            take_text(row, &e, on_text, ctx);
            if (row->n_answer == row->cancel_at_token)
                sennit_request_cancel(row->request);
            break;
        case SENNIT_EVENT_END:
            take_text(row, &e, on_text, ctx);
            take_end(row, &e);
            return CLI_OK;
        }
    }
}

static void submit(struct sennit_engine *engine, struct cli_row *row)
{
    row->submitted = true;
    row->options.prompt = row->ids;
    row->options.n_prompt = row->n_ids;
    if (sennit_engine_submit(engine, &row->options, &row->request, &row->error) == SENNIT_OK) {
        if (row->cancel_at_token == 0)
            sennit_request_cancel(row->request);
        return;
    }
    row->ended = true;
    row->refused = true;
    row->n_prompt = row->n_ids;
}

static void note_step(struct cli_steps *s, struct sennit_engine *engine, uint64_t *weight_bytes)
{
    const struct sennit_step_span *spans;
    uint64_t now = sennit_engine_stats(engine)->weight_bytes_read, read = now - *weight_bytes;
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->rows = cli_realloc(s->rows, s->cap * sizeof *s->rows);
    }
    if (s->n == 0 || read < s->least_weight_bytes)
        s->least_weight_bytes = read;
    if (s->n == 0 || read > s->most_weight_bytes)
        s->most_weight_bytes = read;
    uint32_t n = sennit_engine_last_step(engine, &spans), wide = 0;
    for (uint32_t i = 0; i < n; i++)
        wide += spans[i].n_tokens != 1;
    if (wide == 0 && read > s->decode_weight_bytes)
        s->decode_weight_bytes = read;
    s->rows[s->n++] = n;
    *weight_bytes = now;
}

/* Submits the rows whose step has come, in their order. Returns how many rows have not ended. */
static size_t join(struct sennit_engine *engine, struct cli_row *rows, size_t n_rows, uint64_t step)
{
    size_t open = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (!rows[i].submitted && rows[i].join_at_step <= step)
            submit(engine, &rows[i]);
        open += !rows[i].ended;
    }
    return open;
}

static void cancel_all(struct cli_row *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].request && !rows[i].ended) {
            sennit_request_cancel(rows[i].request);
        } else if (!rows[i].submitted) {
            rows[i].submitted = rows[i].ended = true;
            rows[i].finish = SENNIT_FINISH_CANCELLED;
        }
    }
}

static int outcome(const struct cli_row *rows, size_t n_rows)
{
    int code = CLI_OK;
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].refused && code == CLI_OK)
            code = cli_exit_code(rows[i].error.code);
        if (rows[i].finish == SENNIT_FINISH_ERROR)
            code = CLI_FAILED;
    }
    return code;
}

int cli_rows_run(struct sennit_engine *engine, struct cli_row *rows, size_t n_rows, struct cli_steps *steps,
                 cli_text_fn on_text, void *ctx)
{
    struct sennit_error err = {0};
    uint64_t step = 0, weight_bytes = sennit_engine_stats(engine)->weight_bytes_read;
    double start = cli_now();
    bool interrupted = false;
    while (join(engine, rows, n_rows, step) > 0) {
        bool worked = false;
        if (cli_interrupts && !interrupted) {
            interrupted = true;
            cancel_all(rows, n_rows);
        }
        if (sennit_engine_step(engine, &worked, &err) != SENNIT_OK) {
            cli_fail(&err);
            return CLI_FAILED;
        }
        if (worked)
            note_step(steps, engine, &weight_bytes);
        step++;
        for (size_t i = 0; i < n_rows; i++) {
            if (!rows[i].request || rows[i].ended)
                continue;
            if (drain(&rows[i], on_text, ctx) != CLI_OK)
                return CLI_FAILED;
        }
    }
    steps->seconds += cli_now() - start;
    return interrupted ? CLI_INTERRUPTED : outcome(rows, n_rows);
}

void cli_rows_free(struct cli_row *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        struct cli_row *r = &rows[i];
        sennit_request_free(r->request);
        cli_text_free(&r->text);
        json_decref(r->logprobs);
        json_decref(r->prompt_logprobs);
        for (uint32_t s = 0; r->stops && s < r->options.n_stop; s++)
            free((void *)(uintptr_t)r->stops[s]);
        free(r->stops);
        free(r->biases);
        free(r->forced);
        free(r->answer);
        free(r->ids);
    }
    free(rows);
}

const char *cli_row_finish(const struct cli_row *row)
{
    return row->refused ? "refused" : sennit_finish_name(row->finish);
}

json_t *cli_row_json(const struct cli_row *row, size_t index)
{
    char digest[24];
    json_t *o = json_object();
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)row->digest);
    json_object_set_new(o, "row", json_integer((json_int_t)index));
    json_object_set_new(o, "text", cli_json_text(row->text.data, row->text.n_bytes));
    json_object_set_new(o, "ids", cli_json_ids(row->answer, row->n_answer));
    json_object_set_new(o, "digest", json_string(digest));
    json_object_set_new(o, "finish_reason", json_string(cli_row_finish(row)));
    json_object_set_new(o, "n_prompt", json_integer((json_int_t)row->n_prompt));
    json_object_set_new(o, "n_reused", json_integer((json_int_t)row->n_reused));
    json_object_set_new(o, "n_generated", json_integer((json_int_t)row->n_generated));
    json_object_set_new(o, "prefill_spans", json_integer(row->n_prefill_spans));
    if (row->logprobs)
        json_object_set(o, "logprobs", row->logprobs);
    if (row->prompt_logprobs)
        json_object_set(o, "prompt_logprobs", row->prompt_logprobs);
    if (row->refused || row->finish == SENNIT_FINISH_ERROR) {
        json_t *e = json_object();
        json_object_set_new(e, "code", json_string(sennit_status_name(row->error.code)));
        json_object_set_new(e, "message", cli_json_text(row->error.message, strlen(row->error.message)));
        json_object_set_new(o, "error", e);
    }
    return o;
}

void cli_steps_json(json_t *into, const struct cli_steps *steps)
{
    json_t *rows = json_array(), *weights = json_object();
    for (size_t i = 0; i < steps->n; i++)
        json_array_append_new(rows, json_integer(steps->rows[i]));
    json_object_set_new(into, "rows_per_step", rows);
    json_object_set_new(weights, "least", cli_json_u64(steps->least_weight_bytes));
    json_object_set_new(weights, "most", cli_json_u64(steps->most_weight_bytes));
    json_object_set_new(weights, "decode", cli_json_u64(steps->decode_weight_bytes));
    json_object_set_new(into, "weight_bytes_per_step", weights);
}
